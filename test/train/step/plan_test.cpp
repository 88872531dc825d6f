// The plan of every config that ships: sizes as published, counted without taking memory.
#include "train/step/plan.h"

#include "base/json.h"
#include "test/catch.h"
#include "train/run/mesh_suggestion.h"
#include "train/step/host_state.h"
#include "train/step/lr.h"
#include "train/step/run_cost.h"
#include "train/step/storage.h"

namespace trireme {
namespace {

Plan plan_of(const std::string& name) {
  return make_plan(read_config(std::string(TRIREME_SOURCE) + "/configs/" + name + ".yaml", {}, Purpose::plan), Mesh());
}

int64_t group(const Plan& plan, const std::string& name) {
  for (const ParameterGroup& g : plan.groups)
    if (g.name == name) return g.count;
  return 0;
}

}  // namespace

TEST_CASE("the plan counts the parameters that the models' authors published") {
  const std::pair<const char*, int64_t> published[] = {
      {"gpt2-124m", 124439808},      {"gpt2-355m", 354823168},  {"gpt2-774m", 774030080},  {"gpt2-1558m", 1557611200},
      {"llama3-1b", 1235814400},     {"llama3-3b", 3212749824}, {"llama3-8b", 8030261248}, {"llama3-70b", 70553706496},
      {"llama3-405b", 405853388800}, {"qwen3-0.6b", 596049920},
  };
  for (const auto& [name, parameters] : published) {
    INFO(name);
    CHECK(plan_of(name).parameters == parameters);
  }
}

TEST_CASE("the small configs plan, too") {
  CHECK(plan_of("quickstart").parameters > 4000000);
  CHECK(plan_of("shakespeare-char").parameters > 10000000);
}

TEST_CASE("a plan's FLOPs are six per product parameter and token, and twelve times the causal pairs of attention") {
  const Plan plan = plan_of("gpt2-124m");
  const RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/gpt2-124m.yaml", {}, Purpose::plan);
  const int64_t norms_and_biases = group(plan, "norms") + config.model.layers * (9 * config.model.width);
  const int64_t positions = config.model.context * config.model.width;
  const double products = static_cast<double>(plan.parameters - norms_and_biases - positions);
  CHECK(plan.product_flops == Approx(6 * products * static_cast<double>(plan.tokens)).epsilon(1e-9));
  const double t = static_cast<double>(config.model.context);
  CHECK(plan.attention_flops == Approx(12.0 * static_cast<double>(config.model.layers * config.model.width) * (t + 1) / 2 *
                                       static_cast<double>(plan.tokens))
                                    .epsilon(1e-9));
}

TEST_CASE("layers are dealt by the FLOPs that the plan counts, or as the config says") {
  for (const char* name : {"gpt2-124m", "llama3-1b", "llama3-8b", "qwen3-0.6b"}) {
    INFO(name);
    const auto stages_of = [&](const std::vector<std::string>& more) {
      std::vector<std::string> settings{"parallel.pp=2", "train.batch=32", "train.microbatch=1"};
      settings.insert(settings.end(), more.begin(), more.end());
      const RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/" + name + ".yaml", settings, Purpose::plan);
      std::vector<double> flops;
      for (const Plan& stage : stage_plans(config, 2)) {
        flops.push_back(0);
        for (const auto& [op, count] : stage.step) flops.back() += count.flops;
      }
      return std::pair(config, flops);
    };
    const auto [config, by_cost] = stages_of({});
    const ModelWork work = work_of(config.model, Recompute::none);
    const std::vector<int64_t> dealt = deal_half_layers(work, {.stages = 2});
    double first = 0;
    for (int64_t half = 0; half < dealt[0]; ++half) first += work.of(half, 0);
    CHECK(by_cost[1] / by_cost[0] == Approx((static_cast<double>(config.model.layers) + work.head - first) / first).epsilon(2e-3));
    const int64_t layers = config.model.layers;
    const auto by_hand = stages_of({"parallel.layers=[" + std::to_string(layers - 3) + ",3]"}).second;
    CHECK(by_hand[1] / by_hand[0] == Approx((3 + work.head) / static_cast<double>(layers - 3)).epsilon(2e-3));
    CHECK(by_hand[0] + by_hand[1] == Approx(by_cost[0] + by_cost[1]).epsilon(1e-9));
    const std::string all = std::to_string(layers);
    const auto lone_table = stages_of({"parallel.layers=[0," + all + "]"}).second;
    const auto lone_head = stages_of({"parallel.layers=[" + all + ",0]"}).second;
    CHECK(lone_table[0] == 0);
    CHECK(lone_table[1] == Approx(by_hand[0] + by_hand[1]).epsilon(1e-9));
    CHECK(lone_head[1] / lone_head[0] == Approx(work.head / static_cast<double>(layers)).epsilon(2e-3));
    // Recomputed layers cost more, and the head does not; by stage.
    const ModelWork again = work_of(config.model, Recompute::full, 1);
    CHECK(again.head == work.head);
    CHECK(again.of(0, 0) + again.of(1, 0) == Approx(1.25).epsilon(0.07));  // forward, but for the MLP's product down
    CHECK(again.of(0, 1) + again.of(1, 1) == Approx(1));
    const auto first_again = stages_of({"train.recompute=full", "train.recompute_stages=1"}).second;
    const std::vector<int64_t> moved = deal_half_layers(again, {.stages = 2});
    CHECK(moved[0] < dealt[0]);
    double first_work = 0, second_work = work.head;
    for (int64_t half = 0; half < 2 * config.model.layers; ++half)
      (half < moved[0] ? first_work : second_work) += again.of(half, half < moved[0] ? 0 : 1);
    CHECK(first_again[1] / first_again[0] == Approx(second_work / first_work).epsilon(0.01));
  }
}

TEST_CASE("a plan says how large a checkpoint's manifest is, and warns of one that could not be read again") {
  const auto size_of = [](const char* name, int64_t ranks, const std::vector<std::string>& settings) {
    return checkpoint_size(read_config(std::string(TRIREME_SOURCE) + "/configs/" + name + ".yaml", settings, Purpose::plan), ranks);
  };
  const CheckpointSize one = size_of("gpt2-124m", 1, {});
  CHECK((one.files == 1 && one.pieces > 3 * 12 * 12 && one.problem().empty()));
  const CheckpointSize many = size_of("llama3-405b", 16384, {"parallel.tp=8", "parallel.pp=16"});
  CHECK(many.files == 16384);
  CHECK(many.tensors == 3 * (126 * 9 + 3));
  CHECK(many.manifest_bytes() < 5'000'000);
  // As counted on all ranks.
  const RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/llama3-3b.yaml",
                                       {"parallel.tp=2", "parallel.pp=4", "train.batch=128"}, Purpose::plan);
  int64_t pieces = 0;
  for (int64_t rank = 0; rank < 1024; ++rank) {
    Device device(Place::none);
    pieces += std::ssize(state_slices(TrainState(config, Mesh(rank, 1024, config.parallel), device, {}), Ownership::saved));
  }
  CHECK(checkpoint_size(config, 1024).pieces == Approx(pieces).epsilon(0.03));
  CHECK(many.problem().empty());
  const CheckpointSize flat = size_of("llama3-8b", 16384, {"train.batch=16384", "train.microbatch=1"});
  CHECK((flat.problem().empty() && flat.manifest_bytes() < 5'000'000));
  CHECK_THAT((CheckpointSize{.files = 2'000'000}.problem()), ContainsSubstring("use fewer ranks"));
  CHECK_THAT((CheckpointSize{.files = 1, .most_pieces = 1'000'000}.problem()), ContainsSubstring("1000000 pieces"));
}

TEST_CASE("activations of unequal pieces take the memory of the layers that are kept at once") {
  const RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/llama3-405b.yaml",
                                       {"parallel.tp=8", "parallel.pp=16", "parallel.chunks=7", "parallel.schedule=interleaved"},
                                       Purpose::plan);
  const std::vector<Plan> stages = stage_plans(config, 2048);
  // Stage 1 keeps 125 passes at once, of which 16 have two layers. A layer keeps, in bf16 and divided by 8: streams before its
  // halves and their norms' results, queries and mixed values, keys and values, the MLP's two inputs and its activation.
  const double layer = 2.0 * 8192 * (6 * 16384 + 2 * 1024 + 3 * 53248) / 8, places = 125 + 16;
  const auto bytes = static_cast<double>(stages[1].sizes.activations);
  CHECK(bytes == Approx(places * layer).epsilon(0.01));
  CHECK(bytes < 75 * 1073741824.0);
}

TEST_CASE("a plan counts the ranks that one exchanges messages with") {
  const auto peers = [](const ParallelConfig& parallel, bool on_gpus) { return Mesh(5, 256, parallel).most_peers(on_gpus); };
  const ParallelConfig mesh{.pp = 4, .tp = 4};
  CHECK(peers(mesh, false) == 15 + 3 + 3);
  CHECK(peers(mesh, true) == 8 + 3 + 3);
  ParallelConfig exact = mesh, narrow = mesh, sharded = mesh;
  exact.numerics = Numerics::invariant, narrow.reduce = ReduceDtype::bf16, sharded.shard = 4;
  CHECK(peers(exact, true) == 15 + 3 + 3);
  CHECK(peers(narrow, true) == 15 + 3 + 3);
  CHECK(peers(sharded, true) == 8 + 3 + 3 + 3 + 3);
}

TEST_CASE("a plan says how long saves and restores take on a file system") {
  const Storage storage = parse_storage("100GB,200GB,50000");
  CHECK((storage.write == 100e9 && storage.read == 200e9 && storage.calls == 50000));
  for (const char* const bad :
       {"", "100GB", "100GB,200GB", "100GB,200GB,0", "100GB,200GB,-5", "a,b,c", "1GB,1GB,1,1", "1GB,1GB,1x"})
    CHECK_THROWS_WITH(parse_storage(bad), ContainsSubstring("100GB,200GB,50000"));
  const RunConfig config =
      read_config(std::string(TRIREME_SOURCE) + "/configs/llama3-405b.yaml", {"parallel.tp=8", "parallel.pp=16"}, Purpose::plan);
  const CheckpointSize size = checkpoint_size(config, 16384);
  CHECK(static_cast<double>(size.bytes) == Approx(12 * 405853388800.0).epsilon(1e-3));
  const StorageTimes times = storage_times(config, size, 16384, storage);
  const auto bytes = static_cast<double>(size.bytes);
  CHECK(times.save == Approx(bytes / 100e9 + bytes / 200e9 + static_cast<double>(times.save_calls) / 50000));
  CHECK(times.restore == Approx(bytes / 200e9 + static_cast<double>(times.restore_calls) / 50000));
  CHECK((times.save_calls < 16 * 16384 && times.restore_calls < 4 * 16384));
  CHECK(times.start == Approx(static_cast<double>(times.start_calls) / 50000));
  CHECK((times.start_calls >= 16384 && times.start_with_programs > 10 * times.start));
  CHECK_THAT(storage_lines(config, times), ContainsSubstring("(checkpoint.every = 500)"));
  // Without ZeRO each replica reads what the first has saved.
  RunConfig replicated = config;
  replicated.parallel.zero = 0;
  CHECK(storage_times(replicated, size, 16384, storage).restore > 100 * times.restore);
}

TEST_CASE("a plan says how long a run takes at a given speed, and what it costs") {
  CHECK(parse_speed("400TFLOPS") == 400e12);
  CHECK((parse_speed("1.5 PFLOPS") == 1.5e15 && parse_speed("2e9") == 2e9 && parse_speed("3GFLOPS") == 3e9));
  for (const char* const bad : {"", "fast", "0", "-1TFLOPS", "400TFLOP/s", "1e999", "inf", "nan", "1e300PFLOPS", "400 TFLOPS x"})
    CHECK_THROWS_WITH(parse_speed(bad), ContainsSubstring("such as 400TFLOPS"));
  const auto cost_of = [](std::vector<std::string> set, int64_t ranks, const Speed& speed) {
    const RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/llama3-8b.yaml", set, Purpose::mesh);
    return run_cost(config, stage_plans(config, ranks), ranks, speed);
  };
  // 1,000 steps of 64 samples of 8,192 tokens. A token takes 6 FLOPs per parameter, without the embedding's, and 6 for each
  // element of a layer's width and each token before it, itself included.
  const std::vector<std::string> set{"train.steps=1000",        "train.batch=64",   "train.microbatch=1", "train.price=3 EUR/gpu-hour",
                                     "train.grid_gco2_per_kwh=400", "train.warmup=10"};
  const double tokens = 1000.0 * 64 * 8192, matrices = 8030261248.0 - 128256 * 4096 - 65 * 4096;
  const double flops = tokens * (6 * matrices + 6.0 * 32 * 4096 * 8193);
  const RunCost alone = cost_of(set, 1, {.flops_per_second = 400e12, .watts = 1000});
  CHECK(alone.tokens == tokens);
  CHECK(alone.flops == Approx(flops).epsilon(1e-9));
  CHECK(alone.seconds == Approx(flops / 400e12));
  CHECK(alone.step == Approx(alone.seconds / 1000));
  CHECK(alone.rank_hours == Approx(alone.seconds / 3600));
  CHECK(*alone.kwh == Approx(alone.rank_hours));
  CHECK(*alone.co2_grams == Approx(400 * alone.rank_hours));
  CHECK((*alone.price == Approx(3 * alone.rank_hours) && alone.currency == "EUR"));
  // On more ranks it takes less time and as many hours of all ranks.
  for (const char* const mesh : {"parallel.dp=16", "parallel.tp=8", "parallel.pp=4"}) {
    INFO(mesh);
    std::vector<std::string> more = set;
    more.emplace_back(mesh);
    const RunCost cost = cost_of(more, 16, {.flops_per_second = 400e12});
    CHECK(cost.flops == Approx(flops).epsilon(1e-9));
    CHECK(cost.seconds == Approx(alone.seconds / 16));
    CHECK(*cost.price == Approx(*alone.price));
    CHECK((!cost.kwh && !cost.co2_grams));
  }
  // Nodes that are begun count whole.
  std::vector<std::string> by_node = set;
  by_node.emplace_back("train.price=20 USD/node-hour");
  const RunCost nodes = cost_of(by_node, 16, {.flops_per_second = 400e12, .ranks_per_node = 6});
  CHECK(*nodes.price == Approx(3 * 20 * nodes.seconds / 3600));
  CHECK(!cost_of({"train.price="}, 1, {.flops_per_second = 1e12}).price);
  const std::string lines = run_cost_lines(alone, {.flops_per_second = 400e12});
  for (const char* const said : {"a rank computes 400 TFLOP a second", "524M tokens", "rank-hours", "g CO2", " EUR"})
    CHECK_THAT(lines, ContainsSubstring(said));
}

TEST_CASE("the products that a plan lists are those that a step computes, with what they take along") {
  for (const char* name : {"gpt2-124m", "llama3-1b", "qwen3-0.6b", "quickstart"})
    for (const char* device : {"cpu", "cuda"})
      for (const auto& [recompute, matmul] : {std::pair("none", "auto"), {"selective", "auto"}, {"none", "fp8"}}) {
        INFO(name << " " << device << " " << recompute << " " << matmul);
        const Plan plan = make_plan(read_config(std::string(TRIREME_SOURCE) + "/configs/" + name + ".yaml",
                                                {"kernels.device=" + std::string(device), "train.microbatch=2", "train.batch=6",
                                                 "train.recompute=" + std::string(recompute),
                                                 "kernels.matmul=" + std::string(matmul), "kernels.bf16_layers=1"},
                                                Purpose::plan),
                                    Mesh());
        const OpCount walked = plan.step.at("matmul");
        int64_t calls = 0;
        double bytes = 0;
        for (const ProductShape& p : plan.products) {
          const auto of = [](int64_t elements, Dtype dtype) { return static_cast<double>(elements * bytes_of(dtype)); };
          const Dtype in = Dtype::bf16, out = p.result(in);
          double once =
              of(p.m * p.k + p.k * p.n, p.bits8.value_or(in)) + (p.bits8 ? 8 : 0) + (p.accumulate ? 2 : 1) * of(p.m * p.n, out);
          if (p.bias) once += of(p.n, Dtype::f32);
          if (p.pre_activation || p.gelu_input) once += of(p.m * p.n, out);
          if (p.sums) once += 2 * of(p.m, Dtype::f32);
          calls += p.count, bytes += once * static_cast<double>(p.count);
        }
        CHECK(std::ranges::any_of(plan.products, [](const ProductShape& p) { return p.bits8.has_value(); }) ==
              (matmul == std::string("fp8")));
        CHECK(calls == walked.calls);
        CHECK(bytes == Approx(walked.bytes).epsilon(1e-12));
      }
}

TEST_CASE("with replicas, a rank's plan computes its part, holds its part, and sends each gradient once around") {
  RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/gpt2-124m.yaml", {"train.microbatch=4", "parallel.zero=0"},
                                 Purpose::plan);
  const Plan one = make_plan(config, Mesh()), eighth = make_plan(config, Mesh(3, 8, config.parallel));
  CHECK(one.traffic.empty());
  CHECK(eighth.sizes.total() == one.sizes.total());
  CHECK(eighth.product_flops == Approx(one.product_flops / 8).epsilon(1e-12));
  REQUIRE(eighth.traffic.size() == 1);
  const OpCount& sent = eighth.traffic.at("all_reduce dp");
  CHECK(sent.calls == 2 * config.model.layers + 3 + 1);  // blocks, in two units each, tokens, positions, head, and the loss
  CHECK(sent.bytes == 2 * 7.0 / 8 * static_cast<double>(one.sizes.gradients + 4));

  // ZeRO 1: the same traffic in f32 gradients down and bf16 weights up, an eighth of the optimizer's state.
  config.parallel.zero = 1;
  const Plan sharded = make_plan(config, Mesh(3, 8, config.parallel));
  CHECK(sharded.sizes.activations == one.sizes.activations);
  CHECK(static_cast<double>(sharded.sizes.optimizer) == Approx(static_cast<double>(one.sizes.optimizer) / 8).epsilon(0.001));
  CHECK(sharded.traffic.at("reduce_scatter dp").calls == 2 * config.model.layers + 3);
  CHECK(sharded.traffic.at("reduce_scatter dp").bytes == 7.0 / 8 * static_cast<double>(sharded.sizes.gradients));
  CHECK(sharded.traffic.at("all_gather dp").bytes == 7.0 / 8 * static_cast<double>(sharded.sizes.weights));
  CHECK(sharded.traffic.at("all_reduce dp").calls == 2);  // the loss and the gradient norm

  // Four copies of the state, each on two neighbours: halves travel between these, and parts between copies.
  config.parallel.shard = 2;
  const Plan hybrid = make_plan(config, Mesh(3, 8, config.parallel));
  CHECK(hybrid.copies == 4);
  CHECK(static_cast<double>(hybrid.sizes.optimizer) == Approx(static_cast<double>(one.sizes.optimizer) / 2).epsilon(0.001));
  CHECK(hybrid.traffic.at("reduce_scatter dp_in").bytes == 1.0 / 2 * static_cast<double>(hybrid.sizes.gradients));
  CHECK(hybrid.traffic.at("all_gather dp_in").bytes == 1.0 / 2 * static_cast<double>(hybrid.sizes.weights));
  CHECK(hybrid.traffic.at("all_reduce dp_out").calls == 2 * config.model.layers + 3);
  CHECK(hybrid.traffic.at("all_reduce dp_out").bytes == 2 * 3.0 / 4 * static_cast<double>(hybrid.sizes.gradients) / 2);
  CHECK(hybrid.traffic.at("all_reduce dp_in").calls == 1);  // the gradient norm
  CHECK(hybrid.traffic.at("all_reduce dp").calls == 1);     // the loss
  config.parallel.zero = 2, config.parallel.reduce = ReduceDtype::bf16;
  const Plan late = make_plan(config, Mesh(3, 8, config.parallel));
  const double rounds = static_cast<double>(config.train.batch / 8 / config.train.microbatch);
  CHECK(late.traffic.at("reduce_scatter dp_in").bytes == hybrid.traffic.at("reduce_scatter dp_in").bytes * rounds);
  // Between copies once a step, where addends are bf16 and sums f32.
  CHECK(late.traffic.at("all_reduce dp_out").bytes == 0.75 * hybrid.traffic.at("all_reduce dp_out").bytes);
  config.parallel.shard = 0;
  // Local accumulation: as often as with ZeRO 1, and as much memory for gradients.
  config.parallel.reduce = ReduceDtype::f32, config.parallel.reduce_when = ReduceWhen::step, config.parallel.zero = 3;
  const Plan local = make_plan(config, Mesh(3, 8, config.parallel));
  // Units of half a layer fill up to a multiple of the replicas more often.
  CHECK(local.traffic.at("reduce_scatter dp").bytes == Approx(sharded.traffic.at("reduce_scatter dp").bytes).epsilon(2e-4));
  CHECK(static_cast<double>(local.sizes.gradients) == Approx(static_cast<double>(sharded.sizes.gradients)).epsilon(2e-4));
  CHECK(local.sizes.weights < sharded.sizes.weights / 2);
  config.parallel.reduce_when = ReduceWhen::microbatch;

  // Half of it, with ZeRO 2 for each microbatch, where gradients travel as bf16; what fills memory on the way does not travel.
  config.parallel.zero = 2, config.parallel.reduce = ReduceDtype::bf16;
  const Plan narrow = make_plan(config, Mesh(3, 8, config.parallel));
  const auto microbatches = static_cast<double>(config.train.batch / 8 / config.train.microbatch);
  CHECK(narrow.traffic.at("reduce_scatter dp").bytes ==
        Approx(sharded.traffic.at("reduce_scatter dp").bytes / 2 * microbatches).epsilon(2e-4));
  for (const auto& [name, count] : narrow.traffic) CHECK_THAT(name, ContainsSubstring(" dp"));
}

TEST_CASE("with ZeRO 3 a rank holds its share of weights, gradients and optimizer state, within 5 %") {
  for (const char* name : {"gpt2-124m", "llama3-1b", "llama3-8b"})
    for (const int64_t dp : {2, 8, 64}) {
      const std::string file = std::string(TRIREME_SOURCE) + "/configs/" + name + ".yaml";
      RunConfig config = read_config(file, {"train.microbatch=1", "parallel.zero=3"}, Purpose::mesh);
      if (config.train.batch % dp != 0) continue;
      const auto held = [](const Plan& plan) {
        return static_cast<double>(plan.sizes.weights + plan.sizes.gradients + plan.sizes.optimizer);
      };
      const Plan one = make_plan(config, Mesh()), share = make_plan(config, Mesh(dp - 1, dp, config.parallel));
      CAPTURE(name, dp);
      CHECK(held(share) == Approx(held(one) / static_cast<double>(dp)).epsilon(0.05));
    }
}

TEST_CASE("the published mesh of Llama 3 405B fits into the memory of its GPUs") {
  // Grattafiori et al. 2024, table 4: 16384 GPUs of 80 GB, tp 8, pp 16, dp 128, 16 sequences of 8192 tokens a replica, no
  // recomputation of activations; one layer less on the first and the last stage.
  const RunConfig config = read_config(
      std::string(TRIREME_SOURCE) + "/configs/llama3-405b.yaml",
      {"parallel.tp=8", "parallel.pp=16", "parallel.zero=2", "parallel.layers=[7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,7]"}, Purpose::mesh);
  const std::vector<Plan> stages = stage_plans(config, 16384);
  REQUIRE(stages.size() == 16);
  for (const Plan& plan : stages) {
    CHECK(plan.replicas == 128);
    CHECK(plan.microbatches == 16);
    CHECK(plan.sizes.total() < 80e9);
  }
  CHECK(static_cast<double>(most_bytes(stages)) > 0.8 * 80e9);
  const auto layers = [](const Plan& plan) { return plan.step.at("attention").calls / plan.microbatches; };
  CHECK(layers(stages[0]) == 7);
  CHECK(layers(stages[1]) == 8);
  CHECK(layers(stages[15]) == 7);
}

TEST_CASE("a plan lists every product of the step") {
  for (const char* name : {"gpt2-124m", "quickstart", "qwen3-0.6b"}) {
    const Plan plan = plan_of(name);
    double flops = 0;
    for (const ProductShape& p : plan.products) flops += 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.count);
    INFO(name);
    CHECK(flops == Approx(plan.product_flops).epsilon(1e-12));
  }
}

TEST_CASE("weights, gradients and optimizer state of a plan follow from its parameters") {
  const Plan plan = plan_of("llama3-8b");
  const double n = static_cast<double>(plan.parameters);
  CHECK(static_cast<double>(plan.sizes.weights) == Approx(2 * n).epsilon(1e-4));
  CHECK(static_cast<double>(plan.sizes.gradients) == Approx(4 * n).epsilon(1e-4));
  CHECK(static_cast<double>(plan.sizes.optimizer) == Approx(12 * n).epsilon(1e-4));
}

TEST_CASE("a plan counts scratch memory of a GPU for what grows with the run: products that run apart, and sums of gradients") {
  RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/gpt2-124m.yaml",
                                 {"kernels.device=cuda", "train.microbatch=4", "parallel.zero=2"}, Purpose::plan);
  const Plan one = make_plan(config, Mesh()), eighth = make_plan(config, Mesh(3, 8, config.parallel));
  CHECK(one.product_scratch == 4 * config.model.context * config.model.ffn * 2);
  CHECK(eighth.product_scratch == one.product_scratch);
  CHECK(one.sum_scratch == 0);
  CHECK(static_cast<double>(eighth.sum_scratch) == Approx(50304.0 / 8 * static_cast<double>(config.model.width) * 4).epsilon(1e-3));
  config.parallel.reduce_when = ReduceWhen::step;
  CHECK(make_plan(config, Mesh(3, 8, config.parallel)).sum_scratch == 0);
  config.parallel.reduce_when = ReduceWhen::microbatch, config.parallel.reduce = ReduceDtype::bf16;
  CHECK(make_plan(config, Mesh(3, 8, config.parallel)).sum_scratch == 0);  // in small pieces
}

TEST_CASE("a plan counts what is offloaded to pinned memory of the host apart") {
  RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/gpt2-124m.yaml", {"kernels.device=cuda"}, Purpose::plan);
  const Plan here = make_plan(config, Mesh());
  config.train.offload = Offload::optimizer;
  const Plan there = make_plan(config, Mesh());
  CHECK(there.sizes.total() == here.sizes.total());
  // Masters and moments of matrices, moments of weights of one dim, which are their own masters.
  const int64_t vectors = (13 * config.model.layers + 2) * config.model.width;
  const int64_t padding = (50304 - config.model.vocab) * config.model.width;
  CHECK(static_cast<double>(there.pinned) ==
        Approx(static_cast<double>(12 * (here.parameters + padding) - 4 * vectors)).epsilon(1e-4));
  CHECK(there.device_bytes() == here.device_bytes() - there.pinned);
  CHECK(most_bytes({there}) == there.device_bytes());
  CHECK_THAT(plan_table(config, {there}, {}), ContainsSubstring("total on the GPU") &&
                                                  ContainsSubstring("total pinned on the host") &&
                                                  ContainsSubstring(std::string(text(there.pinned, " bytes"))));
  CHECK(plan_json(config, {there}, {})["bytes"]["pinned_host"] == there.pinned);
}

TEST_CASE("a plan updates all tensors at once") {
  const Plan plan = plan_of("gpt2-124m");
  for (const char* op : {"adamw_schedule", "squared_norm", "adamw"}) CHECK(plan.step.at(op).calls == 1);
}

TEST_CASE("learning rates follow their schedules") {
  TrainConfig config;
  config.lr = 1, config.min_lr = 0.1, config.steps = 100, config.warmup = 10, config.cooldown = 0.2;
  for (const LrSchedule schedule : {LrSchedule::constant, LrSchedule::linear, LrSchedule::cosine, LrSchedule::wsd}) {
    config.schedule = schedule;
    CHECK(learning_rate(config, 0) == Approx(0.1));
    CHECK(learning_rate(config, 9) == Approx(1));
    CHECK(learning_rate(config, 99) == Approx(schedule == LrSchedule::constant ? 1 : 0.1));
    for (int64_t step = 10; step < 99; ++step) CHECK(learning_rate(config, step + 1) <= learning_rate(config, step));
  }
  config.schedule = LrSchedule::linear;
  CHECK(learning_rate(config, 54) == Approx(0.55));
  config.schedule = LrSchedule::cosine;
  CHECK(learning_rate(config, 54) == Approx(0.55));
  config.schedule = LrSchedule::wsd;
  CHECK(learning_rate(config, 79) == Approx(1));
  CHECK(learning_rate(config, 89) == Approx(0.55));
}

}  // namespace trireme
