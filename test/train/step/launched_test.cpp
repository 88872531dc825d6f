// Steps of several ranks from the inside: what the communication lane hides, and that no wait between lanes is missing.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "base/philox.h"
#include "data/shard/shard.h"
#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "parallel/host_collectives.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/sanitized.h"
#include "test/train/process.h"
#include "train/eval/evaluate.h"
#include "train/step/plan.h"
#include "train/step/step.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

// A step of this config on the mesh of the launcher's ranks.
struct Stepper {
  const World& world;
  RunConfig config;
  Mesh mesh;
  Device device{Place::cpu, read_cpu_facts()};
  TrainState run;
  std::vector<int32_t> ids, positions, starts;
  int64_t steps = 0;

  Stepper(const World& world, const RunConfig& wanted)
      : world(world), config(wanted), mesh(world, config.parallel), run(config, mesh, device, make_plan(config, mesh).sizes) {
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    const int64_t tokens = config.train.batch / mesh.replicas() * config.model.context;
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>(philox64(5, static_cast<uint64_t>(i)) % 200));
      positions.push_back(static_cast<int32_t>(i % config.model.context));
    }
    starts.resize(ids.size(), 0);
  }
  ~Stepper() {  // the communication lane may still gather weights, which go before it does
    attempt([&] { run.sync.join(); });
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  std::string describe() const {
    const ParallelConfig& p = config.parallel;
    return text(mesh.describe(), ", ", name_of(p.schedule), ", zero ", p.zero, ", ", name_of(p.numerics), " numerics");
  }

  // A failure ends all ranks at once: memory must not go while lanes use it, and no rank may wait
  // for another.
  template <class Work>
  void attempt(const Work& work) const {
    try {
      work();
    } catch (const std::exception& error) {
      complain(std::string(text(describe(), ": ", error.what())));
      world.abort(ExitCode::internal);
    }
  }

  // From here on, beginning as after a restore.
  void check_order() {
    run.sync.join();
    device.check_order(true);
    run.optimizer.refresh(device.compute(), steps);
  }

  Batch batch() {
    const int64_t rows = config.train.batch / mesh.replicas(), context = config.model.context;
    const auto tensor = [&](std::vector<int32_t>& x) { return Tensor(x.data(), Dtype::i32, Place::cpu, {rows, context}); };
    return {.tokens = tensor(ids),
            .targets = tensor(ids),
            .positions = tensor(positions),
            .document_start = tensor(starts),
            .valid = config.train.batch * context};
  }

  void step() {
    attempt([&] { train_step(run, batch(), steps++); });
  }

  // One step, in seconds, on the slowest rank, with this delay of every collective.
  double seconds(double delay) {
    largest(mesh.all(), 0);  // all begin together
    device.comm().lane()->delay(delay);
    const auto begin = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return static_cast<double>(largest(mesh.all(), static_cast<int64_t>(took.count() * 1e9))) / 1e9;
  }

  // A delay of every collective, of so much of what a block takes in a step, lengthens the step by less than so many of them.
  // Shortest steps are compared: what else the machine does only adds.
  void check_hidden(double share, double collectives, double exposed, int most_pairs) {
    seconds(0);  // the first touches its memory first
    double plain = seconds(0);
    for (int i = 0; i < 2; ++i) plain = std::min(plain, seconds(0));
    const double delay = share * plain / static_cast<double>(config.model.layers);
    double delayed = seconds(delay), growth = 0;
    int pairs = 1;
    do {
      plain = std::min(plain, seconds(0)), delayed = std::min(delayed, seconds(delay));
      growth = (delayed - plain) / delay;
    } while (++pairs < most_pairs && growth >= exposed);
    WARN("a step of " << plain * 1e3 << " ms grows by " << (delayed - plain) * 1e3 << " ms of " << collectives << " x "
                      << delay * 1e3 << " ms; " << pairs << " pairs of steps");
    CHECK(growth < exposed);
  }
};

RunConfig config_of(int64_t layers, int64_t width, int64_t context) {
  RunConfig config;
  config.kernels.dtype = StepDtype::f32;
  config.model.layers = layers, config.model.width = width, config.model.heads = 4;
  config.model.vocab = 257, config.model.context = context;
  config.model.resolve();
  config.train.batch = 8;
  return config;
}

// Small models in f32 and bf16, tied and not, of several microbatches a step: with and without a pipeline on so many
// ranks, 2 or 4.
std::vector<RunConfig> small_configs(int64_t ranks) {
  std::vector<RunConfig> configs;
  const auto add = [&](const ParallelConfig& parallel) {
    const uint64_t dice = philox64(1, configs.size());
    RunConfig& config = configs.emplace_back(config_of(4, 64, 32));
    config.kernels.dtype = dice % 2 == 0 ? StepDtype::bf16 : StepDtype::f32;
    config.model.tied = dice / 2 % 2 == 0;
    config.train.microbatch = 1;
    config.parallel = parallel;
  };
  using enum Schedule;
  for (const Schedule schedule : {gpipe, one_f_one_b, interleaved, zero_bubble, zero_bubble_v})
    for (const int64_t zero : {0, 1, 2, 3})
      for (const int64_t pp : {1, 2})
        for (const Numerics numerics : {Numerics::fast, Numerics::invariant}) {
          const int64_t dp = ranks / pp;
          if ((pp == 1 && schedule != gpipe) || (dp == 1 && zero > 0)) continue;
          add({.dp = dp, .pp = pp, .zero = zero, .schedule = schedule, .numerics = numerics});
        }
  return configs;
}

// Runs the hidden tests of this name.
Ended run_test(const char* name, int ranks) {
  return run_launched({std::filesystem::read_symlink("/proc/self/exe").string(), name}, ranks);
}

bool passed(const Ended& ended) { return ended.code == 0 && ended.out.find("All tests passed") != std::string::npos; }

void check_launched(const char* name, int ranks) {
  const Ended ended = run_test(name, ranks);
  INFO(ended.out << ended.err);
  CHECK(passed(ended));
}

}  // namespace

TEST_CASE("slow collectives hide behind backward", "[.launched]") {
  const World world;
  RunConfig config = config_of(12, 256, 256);
  config.train.batch = 4;  // a few short steps show more than two long ones
  Stepper stepper(world, config);
  REQUIRE(stepper.mesh.replicas() == 2);
  // One collective for each unit, and one for the loss. Only those of the last block and the
  // embedding have little work left to hide behind. A block's backward takes two thirds of its
  // time, of which the collective itself needs some.
  const double collectives = static_cast<double>(stepper.run.stage.units().size()) + 1;
  CHECK(collectives > 14);
  stepper.check_hidden(0.25, collectives, 0.25 * collectives, 6);
}

TEST_CASE("slow gathers of weights hide behind the blocks before", "[.launched]") {
  const World world;
  RunConfig config = config_of(40, 256, 256);
  config.parallel.zero = 3;
  Stepper stepper(world, config);
  REQUIRE(stepper.mesh.replicas() == 2);
  const Tally traffic = make_plan(stepper.config, stepper.mesh).traffic;
  const double gathers = static_cast<double>(traffic.at("all_gather dp").calls);
  CHECK(gathers > 70);  // of each block in forward, and in backward of all but the two that are still there
  // One collective after a block's forward, a third of its time, two after its backward.
  const double collectives = gathers + static_cast<double>(traffic.at("reduce_scatter dp").calls);
  stepper.check_hidden(0.17, collectives, 0.1 * collectives, 6);
}

// How a machine shares its cores and memory among two ranks differs from start to start, and only ever adds: one of some starts is
// to show that delays hide. On a busy machine half of the starts do within six pairs of steps.
void check_overlap(const char* test) {
  std::string told;
  bool hidden = false;
  for (int start = 0; start < 20 && !hidden; ++start) {
    const Ended ended = run_test(test, 2);
    hidden = passed(ended);
    told += ended.out + ended.err;
  }
  INFO(told);
  CHECK(hidden);
}

TEST_CASE("the communication lane hides what collectives take", "[unsanitized][alone]") { check_overlap("slow collectives hide*"); }

TEST_CASE("the communication lane hides what gathers of weights take", "[.][soak]") {
  check_overlap("slow gathers of weights hide*");
}

TEST_CASE("steps and evaluations of several ranks pass the order checker", "[.launched]") {
  const World world;
  const Scratch scratch;
  std::vector<int32_t> tokens(1000, 7);
  write_shard(scratch / "held.h5", {.tokenizer = "t", .vocab = 257, .end_of_document = 256, .text_bytes = 1000}, tokens,
              std::vector<int64_t>{0});
  for (const RunConfig& config : small_configs(world.size())) {
    Stepper stepper(world, config);
    const Corpus corpus({scratch / "held.h5"}, config.model.context, true);
    stepper.check_order();
    for (int i = 0; i < 3; ++i) stepper.step();
    stepper.attempt([&] { evaluate(stepper.run, corpus, 20); });
    stepper.step();
    CHECK(stepper.device.compute().order() != nullptr);
  }
}

TEST_CASE("the order checker reports each wait that a step could lack", "[.launched]") {
  const World world;
  for (const RunConfig& config : small_configs(world.size())) {
    if (config.parallel.pp > 1) continue;
    Stepper stepper(world, config);
    TrainState& r = stepper.run;
    Stream &compute = stepper.device.compute(), &comm = stepper.device.comm();
    const Unit& first = r.stage.units().front();
    Microbatch part = microbatch(stepper.batch(), 0, r.stage.shape().rows);
    part.last = part.gradients_leave = true;
    const LossSum loss{.total = r.loss, .scale = 1};
    stepper.check_order();
    // Without ReplicaSync::read: weights are read while they are gathered.
    if (r.mesh.owner_group().size() > 1) {
      const Event whole = r.sync.gather(first.weights, first.weights_part);
      CHECK_THROWS_WITH(r.stage.forward(compute, part), ContainsSubstring("reads what was written by the comm lane's all_gather"));
      compute.wait(whole);
    }
    r.stage.forward(compute, part, r.hooks);
    // Without the wait in ReplicaSync::lane: gradients leave before backward has written them.
    UnitHooks at_once = r.hooks;
    at_once.done = [&](size_t unit, const Microbatch&) {
      run(stepper.mesh.dp(), comm, AllReduce{.x = r.stage.units()[unit].gradients});
    };
    CHECK_THROWS_WITH(r.stage.backward(compute, part, {.loss = loss}, at_once),
                      ContainsSubstring("the comm lane's all_reduce writes what was"));
    r.stage.forward(compute, part, r.hooks);
    r.stage.backward(compute, part, {.loss = loss}, r.hooks);
    // Without ReplicaSync::join: the update begins before the sums are there.
    r.optimizer.schedule(compute, 0, 1, {});
    CHECK_THROWS_WITH(r.optimizer.update(compute, r.loss), ContainsSubstring("reads what was written by the comm lane's"));
    r.sync.finish(1);
    r.optimizer.update(compute, r.loss);
    // A message that leaves before what it holds is written.
    run(compute, Fill{.x = r.loss});
    CHECK_THROWS_WITH(run(stepper.mesh.dp(), stepper.device.pipe(1), Send{.x = r.loss, .peer = 0, .channel = Channel::forward}),
                      ContainsSubstring("the pipe(1) lane's send reads what"));
  }
}

TEST_CASE("no wait between lanes is missing in a step or an evaluation") {
  for (const int ranks : kSanitized ? std::vector{2} : std::vector{2, 4})
    check_launched("steps and evaluations of several ranks*", ranks);
}
TEST_CASE("a wait that is missing in a step is reported") { check_launched("the order checker reports each*", 2); }

}  // namespace trireme
