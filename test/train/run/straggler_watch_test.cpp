// Ranks that are made slow in a run are named in its log and records, and may end it.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/trainer.h"

namespace trireme {
namespace {

// Makes this rank's work longer by a fraction, unit by unit, with a loop that computes nothing.
void slow_down(TrainState& run, double fraction) {
  run.hooks.read = [&run, fraction, read = run.hooks.read, extra = 0.0](size_t unit, const Microbatch& batch) mutable {
    read(unit, batch);
    PartClock& clock = run.device.clock();
    const double used = clock.on_core(), begin = thread_seconds();
    if (used < extra) extra = 0;  // a new step
    const double more = fraction * (used - extra) - extra;
    while (thread_seconds() - begin < more) {
    }
    if (more > 0) extra += more;
  };
}

Ended train_slowed(const Workplace& place, int ranks, const std::string& slow, const std::vector<std::string>& settings) {
  return train_inside(place, "a run with a slow rank", ranks, slow, settings);
}

// Work per step that is long beside the noise of a busy machine.
const std::vector<std::string> kLongSteps{"train.name=slow",    "model.layers=4",       "model.context=256",
                                          "train.microbatch=1", "train.eval_every=500", "checkpoint.every=500"};

std::vector<std::string> long_steps(const std::vector<std::string>& more) {
  std::vector<std::string> settings = kLongSteps;
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// The lines of metrics.jsonl that have a key.
std::vector<Json> lines_with(const Workplace& place, const std::string& key) {
  std::vector<Json> found;
  std::istringstream in(place.run("slow", "metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (Json object = Json::parse(line); object.contains(key)) found.push_back(object);
  return found;
}

}  // namespace

TEST_CASE("a run with a slow rank", "[.launched]") {
  World world;
  const auto [config, change] = inside_run(world);
  std::istringstream words(change);
  int64_t rank = 0;
  double fraction = 0;
  words >> rank >> fraction;
  const auto slow = [&](TrainState& run) {
    if (run.mesh.all().rank() == rank) slow_down(run, fraction);
  };
  try {
    CHECK(train(config, world, {.from = "never"}, slow) == ExitCode::done);
  } catch (const MachineError& error) {
    CHECK(std::string(error.what()) == "");
  }
}

// Four ranks beside other tests on two cores disturb one another, so this rank is much slower and has four windows of 32 steps.
// Made-up ranks show what is named within 64 steps.
TEST_CASE("a rank that is made slower by four fifths is named, and its work is recorded", "[unsanitized]") {
  const Workplace place;
  succeed(train_slowed(place, 4, "2 0.8", long_steps({"train.steps=134"})));
  const std::vector<Json> windows = lines_with(place, "busy_ms"), events = lines_with(place, "event");
  REQUIRE(windows.size() == 4);  // steps 3 to 34, 66, 98, and 130
  CHECK(windows[0].at("step") == 34);
  CHECK(windows[0].at("slowest_rank") == 2);
  CHECK(windows[0].at("busy_ms").size() == 4);
  REQUIRE(!events.empty());
  CHECK(events[0].at("event") == "straggler");
  CHECK(events[0].at("rank") == 2);
  CHECK(events[0].at("host") == host_name());
  CHECK_THAT(place.run("slow", "log.txt"), ContainsSubstring("warning: rank 2 (" + host_name() + ") computes "));
}

TEST_CASE("a rank whose disk is slow is named, with its data", "[unsanitized]") {
  const Workplace place;
  const std::array<std::pair<const char*, const char*>, 5> faults{{{"LD_PRELOAD", TRIREME_BUILD "/test/libfaulty_disk.so"},
                                                                   {"FAULTY_KIND", "slow"},
                                                                   {"FAULTY_MS", "200"},
                                                                   {"FAULTY_BELOW", "/shards/"},
                                                                   {"FAULTY_RANK", "2"}}};
  for (const auto& [name, value] : faults) setenv(name, value, 1);
  const Ended ended =
      place.train({"train.name=slow", "train.steps=70", "train.microbatch=1", "train.eval_every=500", "checkpoint.every=500"}, 4);
  for (const auto& [name, value] : faults) unsetenv(name);
  succeed(ended);
  const std::vector<Json> events = lines_with(place, "event");
  REQUIRE(!events.empty());
  CHECK(events[0].at("rank") == 2);
  CHECK_THAT(events[0].at("text").string(), ContainsSubstring("waits for its data: look at the disk of its shards"));
}

TEST_CASE("with train.on_straggler = stop, a rank that stays slow ends the run after a save, with 76 and its host",
          "[unsanitized]") {
  const Workplace place;
  const Ended ended = train_slowed(place, 2, "1 0.5", long_steps({"train.steps=20000", "train.on_straggler=stop"}));
  CHECK_THAT(ended.err, ContainsSubstring("train.on_straggler = stop"));
  const Json exit = Json::parse(place.run("slow", "exit.json"));
  CHECK(exit.at("code") == 76);
  CHECK(exit.at("rank") == 1);
  CHECK(exit.at("host") == host_name());
  CHECK(std::filesystem::exists(place.scratch / "runs/slow/checkpoints"));
}

// Each seed slows another rank. A slowed rank is the only one that may be named. TRIREME_SEEDS: so many seeds, not 100.
// With fewer cores than ranks the limit is 14 %, in both windows.
TEST_CASE("one of eight ranks that is slower by 20 or 10 % is named within 64 steps of a run", "[.][soak]") {
  const std::string wanted = environment("TRIREME_SEEDS");
  const int64_t seeds = wanted.empty() ? 100 : std::stoll(wanted);
  for (const std::string fraction : {"0.2", "0.1", "0"}) {
    int64_t slowest_once = 0, slowest_twice = 0, named = 0;  // of the slowed rank: in how many runs it is the slowest of a window
    double most_of_others = 0;
    for (int64_t seed = 0; seed < seeds; ++seed) {
      CAPTURE(fraction, seed);
      const Workplace place;
      const int64_t rank = seed % 8;
      const std::string slow = std::to_string(rank) + " " + fraction;
      succeed(train_slowed(place, 8, slow, long_steps({"train.steps=67", "train.batch=8", "train.seed=" + std::to_string(seed)})));
      const std::vector<Json> events = lines_with(place, "event");
      for (const Json& event : events) UNSCOPED_INFO(event.dump());
      const bool may_be_missed = fraction != "0" && std::thread::hardware_concurrency() < 8;
      CHECK((may_be_missed || events.empty() == (fraction == "0")));
      for (const Json& event : events) CHECK(event.at("rank") == rank);
      named += events.empty() ? 0 : 1;
      int64_t times = 0;
      for (const Json& window : lines_with(place, "busy_ms")) {
        if (window.at("slowest_rank") == rank)
          ++times;
        else
          most_of_others = std::max<double>(most_of_others, window.at("slowest_ratio"));
      }
      slowest_once += times > 0 ? 1 : 0, slowest_twice += times > 1 ? 1 : 0;
    }
    WARN("a rank slower by " << fraction << ": named in " << named << " of " << seeds << " runs, the slowest of one window in "
                             << slowest_once << ", of two in " << slowest_twice << "; other ranks reached " << most_of_others);
  }
}

TEST_CASE("train.straggler_ratio = 0 compares nothing", "[unsanitized]") {
  const Workplace place;
  succeed(train_slowed(place, 2, "1 0.5", long_steps({"train.steps=70", "train.straggler_ratio=0"})));
  CHECK(lines_with(place, "busy_ms").empty());
  CHECK(lines_with(place, "event").empty());
}

}  // namespace trireme
