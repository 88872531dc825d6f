// Gathers of weights in a step with ZeRO 3, counted on imagined ranks: none too many, and early.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "test/catch.h"
#include "train/step/step.h"

namespace trireme {
namespace {

RunConfig gathering_config(int64_t layers, const ParallelConfig& parallel) {
  RunConfig config;
  config.kernels.dtype = StepDtype::f32;
  config.model.layers = layers, config.model.width = 64, config.model.heads = 4;
  config.model.vocab = 257, config.model.context = 32;
  config.model.resolve();
  config.train.batch = 8, config.train.microbatch = 1;  // 4 microbatches of each of two replicas
  config.parallel = parallel;
  return config;
}

struct Gathers {
  int64_t all = 0;     // in a step
  int64_t needed = 0;  // if weights are gathered only when a pass reads them and their memory does not hold them
  int64_t late = 0;    // begun when a pass reads the weights
  int64_t passes = 0;
};

Gathers gathers_of(const RunConfig& config, int64_t rank) {
  const Mesh mesh(rank, config.parallel.dp * config.parallel.pp, config.parallel);
  Device device(Place::none);
  TrainState run(config, mesh, device, {});
  run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
  const std::vector<Unit>& units = run.stage.units();
  Gathers found{.needed = std::ranges::count_if(units, &Unit::held)};  // these once, after the update
  std::array<size_t, 8> there{};                                       // by memory: the unit whose weights it holds
  there.fill(units.size());
  const auto calls = [&] { return device.side_tally()["all_gather dp"].calls; };
  run.hooks.read = [&, read = run.hooks.read](size_t unit, const Microbatch& batch) {
    const int64_t before = calls();
    read(unit, batch);
    found.late += calls() - before;
    if (!units[unit].held && std::exchange(there[units[unit].memory], unit) != unit) ++found.needed;
  };
  run.after = [&](const Action&) { ++found.passes; };
  const int64_t rows = config.train.batch / mesh.replicas(), context = config.model.context;
  const Tensor ids(nullptr, Dtype::i32, Place::none, {rows, context});
  device.measure(true);
  train_step(run, {.tokens = ids, .targets = ids, .positions = ids, .document_start = ids, .valid = rows * context}, 0);
  found.all = calls();
  return found;
}

}  // namespace

TEST_CASE("a step gathers no weights that its passes do not read next, whatever the order of chunks") {
  using enum Schedule;
  for (const Schedule schedule : {gpipe, one_f_one_b, interleaved, zero_bubble, zero_bubble_v})
    for (const bool tied : {false, true})
      for (const StepDtype dtype : {StepDtype::f32, StepDtype::bf16})
        for (int64_t rank = 0; rank < 4; ++rank) {
          RunConfig config = gathering_config(12, {.dp = 2, .pp = 2, .zero = 3, .schedule = schedule});
          if (schedule == interleaved) config.parallel.chunks = 3;
          config.model.tied = tied, config.kernels.dtype = dtype;
          const Gathers found = gathers_of(config, rank);
          INFO(name_of(schedule) << ", rank " << rank << (tied ? ", tied" : "") << (dtype == StepDtype::f32 ? ", f32" : ""));
          CHECK(found.all == found.needed);
          CHECK(found.late <= found.passes);  // the first of a pass alone
          CHECK(found.all > found.passes);
        }
}

TEST_CASE("backward finds the last two half-layers of forward, and forward the first two of backward") {
  constexpr int64_t kLayers = 6, kMicrobatches = 4;
  for (const bool tied : {false, true}) {
    RunConfig config = gathering_config(kLayers, {.dp = 2, .zero = 3});
    config.model.tied = tied;
    const int64_t ends = 2 * (tied ? 1 : kMicrobatches);  // the table and the head, which share memory if they are not tied
    const Gathers found = gathers_of(config, 0);
    CHECK(found.all == ends + 2 * kLayers + (2 * kMicrobatches - 1) * (2 * kLayers - 2));
    CHECK(found.late <= found.passes);
  }
}

}  // namespace trireme
