// Signals to mpirun itself, which kills its ranks two seconds later: they save all the same, and supervise takes that for what it
// is.
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// Signals mpirun in the second step. Returns whether the ranks were still at work when mpirun had ended.
bool stop_mpirun(int signal, int64_t batch) {
  const Workplace place;
  const std::vector<std::string> settings{"train.steps=1000", "train.batch=" + std::to_string(batch), "train.eval_every=0",
                                          "checkpoint.every=0"};
  Process process(place.scratch.path(), Workplace::arguments(settings), 2);
  while (process.running() && place.lines("tiny") < 1) usleep(1000);
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
  REQUIRE(ranks.size() == 2);
  process.signal(signal);
  const int code = process.wait().code;
  const bool later = place.run("tiny", "exit.json").empty();
  for (const auto begin = Clock::now(); any_alive(ranks) && seconds_since(begin) < 300;) usleep(10000);
  INFO("signal " << signal << ": mpirun ended with " << code << "\n" << place.run("tiny", "log.txt"));
  CHECK(code == 1);  // mpirun's own
  CHECK_FALSE(any_alive(ranks));
  const Json exit = Json::parse(place.run("tiny", "exit.json"));
  CHECK(exit.at("code") == 75);
  CHECK(exit.at("step") == place.metrics("tiny").back().at("step"));
  CHECK(run_trireme(place.scratch.path(), {"checkpoint", "verify", "runs/tiny"}).code == 0);
  return later;
}

}  // namespace

TEST_CASE("mpirun that is asked to end kills its ranks, which finish their step and save", "[unsanitized]") {
  stop_mpirun(SIGINT, 4096);
  stop_mpirun(SIGTERM, 4);
}

TEST_CASE("ranks save long after their mpirun has gone", "[.][soak]") {
  int later = 0;
  for (int i = 0; i < 9; ++i) later += stop_mpirun(std::array{SIGINT, SIGTERM, SIGHUP}[static_cast<size_t>(i % 3)], 16384);
  WARN(later << " of 9 runs saved after mpirun had ended");
  CHECK(later > 0);
}

TEST_CASE("a rank whose mpirun is killed without a word does not stay, nor one whose keeper is", "[unsanitized]") {
  const Workplace place;
  Process process(place.scratch.path(), Workplace::arguments({"train.steps=100000", "train.eval_every=0"}), 2);
  while (process.running() && place.lines("tiny") < 5) usleep(1000);
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
  REQUIRE(ranks.size() == 2);
  const std::vector<pid_t> keepers = process.children();  // what mpirun has started
  REQUIRE(keepers.size() == 2);
  CHECK(keepers.front() != ranks.at(0));
  kill(keepers.front(), SIGKILL);
  CHECK(process.wait().code != 0);
  const auto begin = Clock::now();
  while (any_alive(ranks) && seconds_since(begin) < 10) usleep(1000);
  CHECK_FALSE(any_alive(ranks));
}

TEST_CASE("a saved run whose mpirun returns a code of its own is known to supervise as saved", "[unsanitized]") {
  const Workplace place;
  std::vector<std::string> words{"supervise", "--", "mpirun", "-n", "2", std::string(TRIREME_BUILD) + "/trireme"};
  for (const std::string& word : Workplace::arguments({"train.steps=100000", "train.eval_every=0"})) words.push_back(word);
  // supervise would have mpirun kill at once, to be quick after failures.
  setenv("OMPI_MCA_odls_base_sigkill_timeout", "3", 1);
  Process supervisor(place.scratch.path(), words);
  unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
  while (supervisor.running() && place.lines("tiny") < 20) usleep(1000);
  const std::vector<pid_t> launcher = supervisor.children();
  REQUIRE(launcher.size() == 1);
  kill(launcher.front(), SIGTERM);
  const Ended ended = supervisor.wait();
  INFO(ended.err);
  CHECK(ended.code == 75);
  CHECK(Json::parse(place.run("tiny", "exit.json")).at("code") == 75);
  CHECK(Json::parse(place.run("tiny", "attempts.jsonl")).at("code") == 75);
}

}  // namespace trireme
