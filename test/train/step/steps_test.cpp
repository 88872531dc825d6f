// Whole optimizer steps: the plan against the arenas, accumulation, and nothing allocated later.
#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "kernels/copy.h"
#include "kernels/memory.h"
#include "kernels/ops/fill.h"
#include "test/catch.h"
#include "test/reference/golden.h"
#include "test/train/step/tested_steps.h"
#include "train/run/nan_search.h"
#include "train/step/plan.h"
#include "train/step/step.h"

namespace trireme {
namespace {

RunConfig small(StepDtype dtype) {
  RunConfig config;
  config.kernels.device = tested_device();
  config.kernels.dtype = dtype;
  config.model.layers = 2, config.model.width = 48, config.model.heads = 3, config.model.vocab = 300;
  config.model.context = thorough() ? 40 : 16;
  config.train.batch = 6, config.train.microbatch = 2;
  config.resolve();
  return config;
}

struct RandomBatch {
  std::vector<int32_t> ids[4];
  int64_t rows, context;
  RandomBatch(const RunConfig& c, uint64_t seed) : rows(c.train.batch), context(c.model.context) {
    for (auto& v : ids) v.assign(static_cast<size_t>(rows * context), 0);
    for (size_t i = 0; i < ids[0].size(); ++i) {
      ids[0][i] = static_cast<int32_t>(philox64(seed, i) % static_cast<uint64_t>(c.model.vocab));
      ids[1][i] = static_cast<int32_t>(philox64(seed + 1, i) % static_cast<uint64_t>(c.model.vocab));
      ids[2][i] = static_cast<int32_t>(static_cast<int64_t>(i) % context);
    }
  }
  Batch batch() {
    return {.tokens = ids_of(ids[0], rows),
            .targets = ids_of(ids[1], rows),
            .positions = ids_of(ids[2], rows),
            .document_start = ids_of(ids[3], rows),
            .valid = rows * context};
  }
};

}  // namespace

TEST_CASE("the plan's bytes are the arenas' bytes, and a step uses all of them") {
  for (const StepDtype dtype : {StepDtype::f32, StepDtype::bf16})
    for (const Family family : {Family::gpt2, Family::llama}) {
      RunConfig config = small(dtype);
      config.model.family = family;
      config.model.tied = family == Family::gpt2;
      config.model.qk_norm = family == Family::llama;
      const Plan plan = make_plan(config, kOneRank);
      Device device(tested_place(), read_cpu_facts());
      TrainState run(config, kOneRank, device, plan.sizes);
      run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
      RandomBatch random(config, 1);
      train_step(run, random.batch(), 0);
      const ArenaSizes used = run.arenas.peaks();
      CHECK(used.weights == plan.sizes.weights);
      CHECK(used.gradients == plan.sizes.gradients);
      CHECK(used.optimizer == plan.sizes.optimizer);
      CHECK(used.activations == plan.sizes.activations);
      CHECK(used.temporaries == plan.sizes.temporaries);
      const int64_t ids = device.place() == Place::cpu ? 0 : 4 * 6 * config.model.context * 4;  // the batch's copy
      CHECK(device.ledger().bytes() - device.workspace_bytes() == plan.sizes.total() + ids);
    }
}

TEST_CASE(
    "bf16 logits take a third of the memory of f32 ones with their gradients, and change the loss by less than a thousandth") {
  RunConfig config = small(StepDtype::bf16);
  std::vector<Plan> plans;
  std::vector<float> losses;
  for (const LogitsDtype dtype : {LogitsDtype::f32, LogitsDtype::bf16}) {
    config.kernels.logits = dtype;
    plans.push_back(make_plan(config, kOneRank));
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, plans.back().sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    for (int64_t step = 0; step < 2; ++step) {
      RandomBatch random(config, static_cast<uint64_t>(step) * 2);
      losses.push_back(train_step(run, random.batch(), step).loss);
    }
    CHECK(run.arenas.peaks().temporaries == plans.back().sizes.temporaries);
  }
  const int64_t logits = config.train.microbatch * config.model.context * shard_vocab(config.model, 1);
  CHECK(plans[0].sizes.temporaries - plans[1].sizes.temporaries == 4 * logits);
  CHECK(plans[0].step.at("cross_entropy").bytes > 4.0 * static_cast<double>(3 * logits));
  CHECK(plans[1].step.at("cross_entropy_in_place").bytes < 4.1 * static_cast<double>(3 * logits));
  for (size_t i = 0; i < 2; ++i) CHECK(losses[i + 2] == Approx(losses[i]).epsilon(1e-3));
}

TEST_CASE("the plan counts the ops that a real step runs, whatever its microbatches") {
  for (const auto& [rows, matmul] : {std::pair(6, MatmulDtype::automatic),
                                     {3, MatmulDtype::bf16},
                                     {1, MatmulDtype::bf16},
                                     {2, MatmulDtype::fp8},
                                     {6, MatmulDtype::fp8}}) {
    if (matmul == MatmulDtype::fp8 && !multiplies_8_bits()) continue;
    RunConfig config = small(StepDtype::bf16);
    config.train.microbatch = rows;
    config.kernels.matmul = matmul;
    config.model.tied = rows != 3;  // whose classifier is not the embedding's table
    if (rows == 1) config.model.family = Family::gpt2;
    config.resolve();
    const Plan plan = make_plan(config, kOneRank);
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, plan.sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    RandomBatch random(config, 1);
    device.measure(true);
    train_step(run, random.batch(), 0);
    CHECK(device.tally().size() == plan.step.size());
    for (const auto& [name, real] : device.tally()) {
      INFO(name);
      CHECK(plan.step.at(name).calls == real.calls);
      CHECK(plan.step.at(name).flops == Approx(real.flops).epsilon(1e-12));
      CHECK(plan.step.at(name).bytes == Approx(real.bytes).epsilon(1e-12));
    }
  }
}

TEST_CASE("8-bit products change a step a little, and layers that are kept in bf16 are") {
  if (!multiplies_8_bits()) {
    WARN("products of 8 bits: not on this GPU");
    return;
  }
  std::vector<float> losses, norms;
  std::vector<int64_t> rounded;
  for (const auto& [matmul, kept] : {std::pair(MatmulDtype::automatic, 0), {MatmulDtype::fp8, 0}, {MatmulDtype::fp8, 1}}) {
    RunConfig config = small(StepDtype::bf16);
    config.model.family = Family::gpt2;
    config.model.layers = 3;
    config.train.batch = 2;
    config.kernels.matmul = matmul, config.kernels.bf16_layers = kept;
    const Plan plan = make_plan(config, kOneRank);
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, plan.sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    RandomBatch random(config, 1);
    const StepResult result = train_step(run, random.batch(), 0);
    losses.push_back(result.loss), norms.push_back(result.grad_norm);
    rounded.push_back(plan.step.contains("quantize") ? plan.step.at("quantize").calls : 0);
    CHECK(run.arenas.peaks().temporaries == plan.sizes.temporaries);
  }
  // For each of a layer's four products: operands forward, gradient and weight backward, then the
  // present value.
  CHECK(rounded == std::vector<int64_t>{0, 3 * 4 * 5, 4 * 5});
  for (const size_t i : {1, 2}) {
    CHECK(losses[i] != losses[0]);
    CHECK(losses[i] == Approx(losses[0]).epsilon(0.01));
    CHECK(norms[i] == Approx(norms[0]).epsilon(0.05));
  }
  CHECK(losses[1] != losses[2]);
}

// All that the optimizer holds.
std::vector<std::vector<float>> state_of(TrainState& run) {
  std::vector<std::vector<float>> all;
  for (const TensorSlice& s : run.optimizer.slices()) {
    std::vector<float>& values = all.emplace_back(static_cast<size_t>(s.local.size()));
    copy(run.device.compute(), Tensor(values.data(), Dtype::f32, Place::cpu, {s.local.size()}), s.local);
    run.device.compute().finish();
  }
  return all;
}

// The state after some steps, in the memory that the plan says.
std::vector<std::vector<float>> state_after(const RunConfig& config, const Plan& plan, int64_t steps) {
  Device device(tested_place(), read_cpu_facts());
  TrainState run(config, kOneRank, device, plan.sizes);
  run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
  for (int64_t step = 0; step < steps; ++step) {
    RandomBatch random(config, static_cast<uint64_t>(step) * 2);
    train_step(run, random.batch(), step);
  }
  CHECK(run.arenas.peaks().activations == plan.sizes.activations);
  CHECK(run.arenas.peaks().temporaries == plan.sizes.temporaries);
  return state_of(run);
}

TEST_CASE("what backward computes again has the same bits, in less memory that the plan knows") {
  using Kind = std::pair<Family, MatmulDtype>;
  const Kind llama{Family::llama, MatmulDtype::automatic}, fp8{Family::gpt2, MatmulDtype::fp8};
  for (const auto& [family, matmul] :
       !thorough() ? std::vector{llama} : std::vector{Kind(Family::gpt2, MatmulDtype::automatic), llama, fp8}) {
    if (matmul == MatmulDtype::fp8 && !multiplies_8_bits()) continue;
    RunConfig config = small(StepDtype::bf16);
    config.model.family = family;
    config.model.qk_norm = family == Family::llama;
    config.kernels.matmul = matmul;
    config.train.microbatch = matmul == MatmulDtype::fp8 ? 2 : 3;
    std::vector<std::vector<std::vector<float>>> states;
    std::vector<Plan> plans;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      config.train.recompute = recompute;
      plans.push_back(make_plan(config, kOneRank));
      states.push_back(state_after(config, plans.back(), 2));
    }
    CHECK(states[2] == states[0]);
    // On a GPU, gpt2's products take GELU along, which cannot be computed again from what they are rounded to.
    const bool gelu = tested_place() == Place::cuda && family == Family::gpt2 && matmul != MatmulDtype::fp8;
    CHECK((gelu ? relative_error(states[1][0], states[0][0]) < 0.01 : states[1] == states[0]));
    CHECK(plans[1].sizes.activations < plans[0].sizes.activations);
    CHECK(plans[2].sizes.activations < plans[1].sizes.activations);
    // The model's work is the same; what is done for it is not.
    CHECK(plans[2].model_flops() == plans[0].model_flops());
    CHECK(plans[1].step.at("matmul").calls == plans[0].step.at("matmul").calls);
    CHECK(plans[2].step.at("matmul").calls ==
          plans[0].step.at("matmul").calls + config.train.batch / config.train.microbatch * config.model.layers * 3);
  }
}

TEST_CASE("weights that are rounded to 8 bits once a step give the same bits as in each microbatch") {
  if (!multiplies_8_bits()) return;
  for (const Family family : {Family::gpt2, Family::llama}) {
    RunConfig config = small(StepDtype::bf16);
    config.model.family = family;
    config.kernels.matmul = MatmulDtype::fp8;
    config.train.microbatch = 2;
    std::vector<std::vector<std::vector<float>>> states;
    std::vector<Plan> plans;
    for (const Fp8Weights rounded : {Fp8Weights::step, Fp8Weights::microbatch}) {
      config.kernels.fp8_weights = rounded;
      plans.push_back(make_plan(config, kOneRank));
      states.push_back(state_after(config, plans.back(), 3));
    }
    CHECK(states[0] == states[1]);
    // Four weights of a layer: rounded plain and transposed at once, instead of apart in each of three microbatches.
    const int64_t weights = 4 * config.model.layers;
    CHECK(plans[1].step.at("quantize").calls - plans[0].step.at("quantize").calls == weights * (3 * 2 - 1));
    CHECK(plans[0].sizes.activations > plans[1].sizes.activations);
  }
}

TEST_CASE("weights restored from their masters are those of the last step, however they are rounded") {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    RunConfig config = small(StepDtype::bf16);
    config.model.family = Family::gpt2;
    config.train.rounding = rounding;
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, make_plan(config, kOneRank).sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    const auto weights = [&] {
      std::vector<std::vector<std::byte>> all;
      for (const Parameter& p : run.stage.parameters()) {
        std::vector<std::byte>& bits = all.emplace_back(static_cast<size_t>(p.weight.bytes()));
        copy(device.compute(), Tensor(bits.data(), p.weight.dtype(), Place::cpu, {p.weight.size()}), p.weight);
        device.compute().finish();
      }
      return all;
    };
    const auto fresh = weights();
    run.optimizer.refresh(device.compute(), 1);
    CHECK((weights() == fresh) == (rounding == Rounding::nearest));
    RandomBatch random(config, 1);
    for (int64_t step = 0; step < 2; ++step) {
      train_step(run, random.batch(), step);
      if (step == 1) {  // no update, and yet the step counts
        trireme::run(device.compute(), Fill{.x = run.stage.parameters()[3].gradient, .value = NAN});
        train_step(run, random.batch(), ++step);
      }
      const auto after = weights();
      run.optimizer.refresh(device.compute(), 0);
      run.optimizer.refresh(device.compute(), step + 1);
      CHECK(weights() == after);
    }
  }
}

TEST_CASE("optimizer state in pinned memory of the host has the bits of state on the GPU, in the bytes that the plan says") {
  RunConfig config = small(StepDtype::bf16);
  config.train.microbatch = 3;
  if (tested_place() == Place::cpu) {
    Device device(Place::cpu);
    CHECK_THROWS_WITH(Buffer(device, 64, "a test", Memory::pinned), ContainsSubstring("pinned memory on place cpu for a test"));
    return;
  }
  std::vector<std::vector<std::vector<float>>> states;
  std::vector<Plan> plans;
  for (const Offload offload : {Offload::none, Offload::optimizer}) {
    config.train.offload = offload;
    plans.push_back(make_plan(config, kOneRank));
    const Plan& plan = plans.back();
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, plan.sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    for (int64_t step = 0; step < 2; ++step) {
      RandomBatch random(config, static_cast<uint64_t>(step) * 2);
      train_step(run, random.batch(), step);
    }
    states.push_back(state_of(run));
    CHECK(run.arenas.peaks().optimizer == plan.sizes.optimizer);
    CHECK(run.arenas.peaks().temporaries == plan.sizes.temporaries);
    CHECK(device.ledger().bytes() - device.workspace_bytes() ==
          plan.sizes.total() + 4 * 6 * config.model.context * 4);  // the batch's copy
  }
  CHECK(states[1] == states[0]);
  CHECK(plans[0].pinned == 0);
  CHECK(plans[1].pinned == plans[0].sizes.optimizer);
  CHECK(plans[1].device_bytes() == plans[0].device_bytes() - plans[0].sizes.optimizer);
}

TEST_CASE("nothing is allocated after the first step", "[cpu]") {
  const RunConfig config = small(StepDtype::bf16);
  Device device(tested_place(), read_cpu_facts());
  TrainState run(config, kOneRank, device, make_plan(config, kOneRank).sizes);
  run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
  RandomBatch random(config, 1);
  train_step(run, random.batch(), 0);
  device.freeze();
  train_step(run, random.batch(), 1);
  const auto before = mallinfo2();
  for (int64_t step = 2; step < 22; ++step) train_step(run, random.batch(), step);
  const auto after = mallinfo2();
  // The OpenMP runtime may keep a few hundred bytes more; 20 steps that each keep something show.
  CHECK(after.uordblks < before.uordblks + 4096);
  CHECK(after.hblkhd == before.hblkhd);
  CHECK_THROWS_AS(Buffer(device, 4096, "a test"), Error);
}

TEST_CASE("gradient accumulation gives the losses of one large batch") {
  RunConfig config = small(StepDtype::f32);
  std::vector<std::vector<float>> losses;
  for (const int64_t rows : thorough() ? std::vector<int64_t>{6, 3, 2, 1} : std::vector<int64_t>{6, 2}) {
    config.train.microbatch = rows;
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, make_plan(config, kOneRank).sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    losses.emplace_back();
    for (int64_t step = 0; step < (tested_place() == Place::cpu ? 5 : 2); ++step) {
      RandomBatch random(config, static_cast<uint64_t>(step) * 2);
      losses.back().push_back(train_step(run, random.batch(), step).loss);
    }
    CHECK(relative_error(losses.back(), losses.front()) < 2e-6);
  }
}

TEST_CASE("the loss is the mean over valid targets, however they fall on microbatches") {
  RunConfig config = small(StepDtype::f32);
  RandomBatch random(config, 3);
  for (size_t i = 0; i < random.ids[1].size(); i += i < 100 ? 2 : 17) random.ids[1][i] = -1;
  std::vector<float> losses;
  for (const int64_t rows : {6, 1}) {
    config.train.microbatch = rows;
    Device device(tested_place(), read_cpu_facts());
    TrainState run(config, kOneRank, device, make_plan(config, kOneRank).sizes);
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    Batch batch = random.batch();
    batch.valid = std::count_if(random.ids[1].begin(), random.ids[1].end(), [](int32_t id) { return id >= 0; });
    losses.push_back(train_step(run, batch, 0).loss);
  }
  CHECK(losses[0] == Approx(losses[1]).epsilon(1e-6));
  CHECK(losses[0] == Approx(std::log(300.0)).epsilon(0.05));  // a fresh model knows nothing
}

TEST_CASE("a gradient that is not finite leaves weights and moments alone") {
  const RunConfig config = small(StepDtype::bf16);
  Device device(tested_place(), read_cpu_facts());
  TrainState run(config, kOneRank, device, make_plan(config, kOneRank).sizes);
  run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
  RandomBatch random(config, 1);
  train_step(run, random.batch(), 0);
  const std::vector<std::vector<float>> before = state_of(run);
  const auto is_added_to = [&](const Parameter& p) { return !run.stage.written(p); };
  trireme::run(device.compute(), Fill{.x = std::ranges::find_if(run.stage.parameters(), is_added_to)->gradient, .value = NAN});
  CHECK(std::isnan(train_step(run, random.batch(), 1).grad_norm));
  CHECK((state_of(run) == before));  // not printed: it is long
  CHECK(std::isfinite(train_step(run, random.batch(), 2).grad_norm));
  // The origin of such a number is found on this device by a step that changes nothing.
  const std::vector<std::vector<float>> after = state_of(run);
  CHECK(find_not_finite(run, random.batch(), 2).found.empty());
  CHECK((state_of(run) == after));
  trireme::run(device.compute(), Fill{.x = run.optimizer.slices().front().local, .value = INFINITY});
  CHECK(find_not_finite(run, random.batch(), 2).found == "rank 0 | dp 0 pp 0 tp 0: its own " + run.optimizer.slices().front().name);
}

TEST_CASE("steps whose results are read late, replayed as a graph or not, leave the same bits") {
  RunConfig config = small(StepDtype::bf16);
  std::vector<std::vector<float>> losses;
  std::vector<std::vector<std::vector<float>>> states;
  for (const bool graph : {false, true})
    for (const int64_t late : {0, 1}) {
      if (!thorough() && graph != (late == 1)) continue;
      config.kernels.graph = graph;
      Device device(tested_place(), read_cpu_facts());
      TrainState run(config, kOneRank, device, make_plan(config, kOneRank).sizes);
      run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
      std::vector<float>& found = losses.emplace_back();
      for (int64_t step = 0; step < 4 + late; ++step) {
        if (step < 4) {
          RandomBatch random(config, static_cast<uint64_t>(step) * 2);
          Batch batch = random.batch();
          batch.valid -= step / 3;  // a number in memory, which one graph reads
          begin_step(run, batch, step);
        }
        if (step >= late) found.push_back(end_step(run, step - late).loss);
      }
      states.push_back(state_of(run));
    }
  for (size_t i = 1; i < losses.size(); ++i) {
    CHECK(losses[i] == losses[0]);
    CHECK(states[i] == states[0]);
  }
}

}  // namespace trireme
