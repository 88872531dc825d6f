// Lanes, pipelines and the step's own thread side by side on every rank: for the thread sanitizer, whose build has this file.
#include <filesystem>

#include "test/catch.h"
#include "test/train/process.h"
#include "test/train/tiny_mesh.h"

namespace trireme {

TEST_CASE("two replicas of two stages or shards, in every way of moving units and rows", "[.launched]") {
  const World world;
  RunConfig config = tiny("llama");
  config.train.steps = config.train.warmup = 3;
  config.model.layers = 4;
  using enum Schedule;
  for (const auto& [zero, schedule, numerics] :
       {std::tuple(0, one_f_one_b, Numerics::fast), std::tuple(1, zero_bubble, Numerics::fast),
        std::tuple(2, gpipe, Numerics::fast), std::tuple(3, interleaved, Numerics::fast),
        std::tuple(3, zero_bubble, Numerics::invariant), std::tuple(1, interleaved, Numerics::invariant),
        std::tuple(1, zero_bubble_v, Numerics::fast), std::tuple(3, zero_bubble_v, Numerics::invariant)}) {
    config.parallel = {.dp = 2, .pp = 2, .zero = zero, .schedule = schedule, .numerics = numerics};
    config.train.recompute = zero == 1 ? Recompute::full : Recompute::none;
    CAPTURE(zero, name_of(schedule), name_of(numerics));
    for (const float loss : trajectory(config, Mesh(world, config.parallel)).losses) CHECK(loss > 1);
  }
  for (const auto& [sequence, numerics] :
       {std::pair(true, Numerics::fast), std::pair(false, Numerics::fast), std::pair(true, Numerics::invariant)}) {
    config.parallel = {.dp = 2, .tp = 2, .zero = 3, .sequence = sequence, .tp_overlap = true, .numerics = numerics};
    CAPTURE(sequence, name_of(numerics));
    for (const float loss : trajectory(config, Mesh(world, config.parallel)).losses) CHECK(loss > 1);
  }
}

TEST_CASE("lanes and pipelines of two replicas of two stages or shards do not race") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Ended ended = run_launched({program, "two replicas of two stages or*"}, 4);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("All tests passed") != std::string::npos);
  CHECK(ended.err.find("ThreadSanitizer") == std::string::npos);
}

}  // namespace trireme
