#include "test/train/tiny_mesh.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/philox.h"
#include "test/catch.h"
#include "train/step/plan.h"
#include "train/telemetry/log.h"

namespace trireme {

RunConfig tiny(const std::string& model) {
  RunConfig config;
  ModelConfig& m = config.model;
  config.kernels.dtype = StepDtype::f32;
  m.family = model == "gpt2" ? Family::gpt2 : Family::llama;
  m.tied = model != "llama, untied";
  m.layers = 8, m.width = 32, m.heads = 8, m.head_size = 4, m.ffn = 32, m.vocab = 61, m.context = 16;
  if (m.family == Family::llama) m.kv_heads = 2, m.qk_norm = m.tied, m.qkv_bias = !m.tied, m.z_loss = 1e-3;
  m.init_std = 0.1;
  config.train.batch = kTinyBatch, config.train.microbatch = 1, config.train.steps = kTinySteps;
  config.train.lr = 3e-3, config.train.warmup = 3, config.train.clip = 0.5;
  config.resolve();
  return config;
}

namespace {

// Rows of random tokens, the replica's part of a step.
struct TinyBatch {
  std::vector<int32_t> tokens, targets, positions, starts;
  int64_t rows;

  TinyBatch(const RunConfig& config, const Mesh& mesh, int64_t step) : rows(kTinyBatch / mesh.replicas()) {
    const int64_t context = config.model.context;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t of_batch = row * mesh.replicas() + mesh.replica();  // as the Loader deals out microbatches of one row
      for (int64_t t = 0; t < context; ++t) {
        const auto id = [&](int64_t at) {
          const auto index = static_cast<uint64_t>(((step * kTinyBatch) + of_batch) * (context + 1) + at);
          return static_cast<int32_t>(philox64(3, index) % 8 * 7 + philox64(4, index) % 5);
        };
        tokens.push_back(id(t));
        targets.push_back(t == 3 ? -1 : id(t + 1));
        positions.push_back(static_cast<int32_t>(t));
        starts.push_back(t < 9 ? 0 : 9);
      }
    }
  }
  Batch batch(int64_t context) {
    const auto tensor = [&](std::vector<int32_t>& ids) { return Tensor(ids.data(), Dtype::i32, Place::cpu, {rows, context}); };
    return {.tokens = tensor(tokens),
            .targets = tensor(targets),
            .positions = tensor(positions),
            .document_start = tensor(starts),
            .valid = kTinyBatch * (context - 1)};
  }
};

// Counts of collectives since measure(), by name.
Tally collectives_of(Device& device) {
  Tally found;
  for (const Tally& tally : {device.tally(), device.side_tally()})
    for (const auto& [name, count] : tally)
      if (name.find(' ') != std::string::npos) found[name].calls += count.calls, found[name].bytes += count.bytes;
  return found;
}

void check_traffic(const Tally& counted, const Tally& planned) {
  CHECK(counted.size() == planned.size());
  for (const auto& [name, count] : planned) {
    INFO(name);
    const OpCount found = counted.contains(name) ? counted.at(name) : OpCount{};
    CHECK(found.calls == count.calls);
    CHECK(found.bytes == Approx(count.bytes).epsilon(1e-12));
  }
}

// Makes gradients NaN that the next step writes: it must not read them. All others are 0.
void spoil_written(TrainState& run) {
  const ParallelConfig& p = run.config.parallel;
  const bool reduced_each = p.zero >= 2 && p.reduce_when != ReduceWhen::step && run.mesh.owner_group().size() > 1;
  CHECK(run.stage.shape().writes_gradients == !(p.exact() || p.local() || p.compresses() || reduced_each));
  run.sync.join();
  run.device.compute().finish();
  for (const Parameter& parameter : run.stage.parameters()) {
    const std::span<float> gradient(parameter.gradient.as<float>(), static_cast<size_t>(parameter.gradient.size()));
    if (run.stage.written(parameter))
      std::ranges::fill(gradient, NAN);
    else if (!reduced_each)
      CHECK(std::ranges::all_of(gradient, [](float g) { return g == 0; }));
  }
}

}  // namespace

Trajectory trajectory(const RunConfig& config, const Mesh& mesh) {
  Device device(Place::cpu, read_cpu_facts());
  device.check_order(true);
  const Plan plan = make_plan(config, mesh);
  TrainState run(config, mesh, device, plan.sizes);
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  Trajectory found;
  for (int64_t step = 0; step < config.train.steps; ++step) {
    TinyBatch batch(config, mesh, step);
    spoil_written(run);
    try {
      const StepResult result = train_step(run, batch.batch(config.model.context), step);
      found.losses.push_back(result.loss);
      found.norms.push_back(result.grad_norm);
    } catch (const std::exception& error) {
      complain(std::string(text(mesh.describe(), ": ", error.what())));  // now: what follows goes while lanes may work on it
      throw;
    }
  }
  for (const TensorSlice& slice : run.optimizer.own_slices())
    if (slice.name.find("adam_") != std::string::npos)
      found.own_moments.insert(found.own_moments.end(), slice.local.as<float>(), slice.local.as<float>() + slice.local.size());
  const ArenaSizes used = run.arenas.peaks(), planned = plan.sizes;
  CHECK(used.weights == planned.weights);
  CHECK(used.gradients == planned.gradients);
  CHECK(used.optimizer == planned.optimizer);
  CHECK(used.activations == planned.activations);
  CHECK(used.temporaries == planned.temporaries);
  run.sync.join();
  device.measure(true);
  TinyBatch once_more(config, mesh, config.train.steps);
  train_step(run, once_more.batch(config.model.context), config.train.steps);
  run.sync.join();
  check_traffic(collectives_of(device), plan.traffic);
  device.measure(true);
  run.optimizer.meet(device.compute(), config.parallel.apart_after + config.parallel.local_steps);
  run.sync.join();
  check_traffic(collectives_of(device), plan.outer_traffic);
  run.sync.join();
  return found;
}

}  // namespace trireme
