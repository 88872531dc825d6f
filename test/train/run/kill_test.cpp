// Runs of several ranks, killed at any moment: during steps, saves, loads and start-up, by the death of a rank or of the launcher.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <sstream>

#include "base/json.h"
#include "base/philox.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

struct Tried {
  int64_t kills = 0, longest_chain = 0, left_alone = 0, amid = 0;  // amid: that stopped a run which had got on
};

// Kills a run on this mesh again and again until it is finished; then another, until there have been so many kills.
Tried check_kills(const std::string& mesh, int ranks, int64_t kills, uint64_t seed) {
  const Workplace place;
  std::vector<std::string> settings{"train.steps=60",     "checkpoint.every=2",  "checkpoint.keep=2",
                                    "train.microbatch=1", "train.eval_every=25", "model.layers=2"};
  std::istringstream words(mesh);
  for (std::string word; words >> word;) settings.push_back(word);
  const auto named = [&](const std::string& name) {
    std::vector<std::string> all = settings;
    all.push_back("train.name=" + name);
    return all;
  };
  const auto begin = std::chrono::steady_clock::now();
  succeed(place.train(named("whole"), ranks));
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - begin;
  Tried tried;
  for (int64_t run = 0; tried.kills < kills; ++run) {
    const std::string name = "run-" + std::to_string(run);
    int64_t chain = 0;
    for (bool running = true; running;) {
      const uint64_t dice = philox64(seed, static_cast<uint64_t>(1000 * run + chain));
      Process process(place.scratch.path(), Workplace::arguments(named(name)), ranks);
      const int64_t lines = place.lines(name);
      usleep(static_cast<useconds_t>(50000 + dice % static_cast<uint64_t>(whole.count())));
      running = process.running() && tried.kills < kills;
      if (running) {
        const std::map<int, pid_t> started = launched_ranks(place.scratch.path());
        const auto victim = started.find(static_cast<int>(dice / 1000000 % static_cast<uint64_t>(ranks + 1)));
        if (victim != started.end())
          kill(victim->second, SIGKILL);
        else
          process.signal(SIGKILL);
        ++tried.kills, ++chain;
        tried.amid += place.lines(name) > lines;
      }
      const Ended ended = process.wait();
      tried.left_alone += ended.left_alone;
      INFO(mesh << ": " << ended.err);
      if (!running) REQUIRE(ended.code == 0);
      for (int wait = 0; wait < 300 && !launched_ranks(place.scratch.path()).empty(); ++wait) usleep(10000);
      REQUIRE(launched_ranks(place.scratch.path()).empty());
    }
    tried.longest_chain = std::max(tried.longest_chain, chain);
    INFO(mesh);
    REQUIRE(place.metrics(name) == place.metrics("whole"));
    REQUIRE(place.differ(name, "whole") == 0);
  }
  return tried;
}

// Asks runs to stop, at random moments, by each signal, of a rank or of mpirun, which passes two of them on.
void check_preemptions(int64_t count) {
  const Workplace place;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t dice = philox64(31, static_cast<uint64_t>(i));
    const std::string name = "run-" + std::to_string(i);
    const bool launcher = i % 4 == 0;
    const int signal = launcher ? (dice % 2 == 0 ? SIGUSR1 : SIGUSR2) : std::array{SIGTERM, SIGUSR1, SIGUSR2}[dice % 3];
    Process process(place.scratch.path(),
                    Workplace::arguments({"train.name=" + name, "train.steps=100000", "train.eval_every=0", "train.microbatch=1",
                                          "checkpoint.every=7", "parallel.tp=2"}),
                    4);
    std::map<int, pid_t> ranks;
    while (process.running() && (ranks.size() < 4 || place.lines(name) < 1))
      ranks = launched_ranks(place.scratch.path()), usleep(2000);
    usleep(static_cast<useconds_t>(dice / 8 % 300000));
    launcher ? process.signal(signal) : void(kill(ranks.at(static_cast<int>(dice / 3 % 4)), signal));
    const Ended ended = process.wait();
    INFO("preemption " << i << ": signal " << signal << (launcher ? " to mpirun" : " to a rank") << "\n" << ended.err);
    REQUIRE(ended.code == 75);
    const Json exit = Json::parse(place.run(name, "exit.json"));
    REQUIRE(exit.at("code") == 75);
    REQUIRE(exit.at("step") == place.metrics(name).back().at("step"));
    const Ended listed = run_trireme(place.scratch.path(), {"checkpoint", "list", "runs/" + name});
    REQUIRE_THAT(listed.out, ContainsSubstring("step " + std::to_string(exit.at("step").get<int64_t>()) + "  "));
  }
}

}  // namespace

TEST_CASE("runs that are asked to stop lose no step, whichever signal it is and whoever gets it", "[unsanitized]") {
  check_preemptions(4);
}
TEST_CASE("two hundred preemptions", "[.][soak]") { check_preemptions(200); }

TEST_CASE("runs of several ranks that are killed at random moments end with the bits of an undisturbed one", "[unsanitized]") {
  CHECK(check_kills("parallel.dp=2 parallel.pp=2 parallel.zero=1", 4, 5, 1).kills == 5);
}

TEST_CASE("five hundred kills over ten meshes", "[.][soak]") {
  const std::vector<std::pair<std::string, int>> meshes{{"parallel.dp=2", 2},
                                                        {"parallel.dp=2 parallel.zero=1", 2},
                                                        {"parallel.dp=2 parallel.zero=2", 2},
                                                        {"parallel.dp=4 parallel.zero=3", 4},
                                                        {"parallel.tp=2", 2},
                                                        {"parallel.tp=2 parallel.sequence=true parallel.dp=2", 4},
                                                        {"parallel.pp=2", 2},
                                                        {"parallel.pp=2 parallel.schedule=zero_bubble", 2},
                                                        {"parallel.dp=2 parallel.pp=2 parallel.zero=1", 4},
                                                        {"parallel.dp=2 parallel.tp=2 parallel.pp=2", 8}};
  int64_t kills = 0, chain = 0;
  for (size_t i = 0; i < meshes.size(); ++i) {
    const Tried tried = check_kills(meshes[i].first, meshes[i].second, 50, 100 + i);
    kills += tried.kills, chain = std::max(chain, tried.longest_chain);
    WARN(meshes[i].first << ": " << tried.kills << " kills, up to " << tried.longest_chain << " in a chain, " << tried.amid
                         << " amid steps, mpirun hung without ranks " << tried.left_alone << " times");
  }
  CHECK(kills >= 500);
  CHECK(chain >= 3);
}

}  // namespace trireme
