// Requests to stop in a run's first moments: while MPI starts, before the config is read, while machines are checked,
// while the state is restored.
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// Rank 1 starts late, so that rank 0 waits for it inside of MPI_Init.
const char* const kLateRank = "#!/bin/sh\n[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || sleep 2\nexec \"$@\"\n";

// Waits for rank 0 to be inside of MPI_Init, which has opened the library by which ranks find each other.
pid_t starting_rank(const Workplace& place, Process& process) {
  while (process.running()) {
    const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
    const auto rank = ranks.find(0);
    if (rank != ranks.end() && read_text("/proc/" + std::to_string(rank->second) + "/maps").find("pmix") != std::string::npos)
      return rank->second;
    usleep(1000);
  }
  return -1;
}

std::vector<std::string> late_rank(const Workplace& place) {
  write_text(place.scratch / "late", kLateRank);
  std::filesystem::permissions(place.scratch / "late", std::filesystem::perms::owner_all);
  std::vector<std::string> words{"--oversubscribe", "-n", "2", place.scratch / "late", std::string(TRIREME_BUILD) + "/trireme"};
  for (const std::string& word : Workplace::arguments({"train.microbatch=1"})) words.push_back(word);
  return words;
}

// Whether the program, and not the test's copy that is about to become it, has a handler.
bool catches(pid_t process, int signal) {
  std::error_code error;
  if (std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/exe", error).filename() != "trireme") return false;
  std::istringstream in(read_text("/proc/" + std::to_string(process) + "/status"));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

}  // namespace

TEST_CASE("a request to stop while MPI starts ends with 75 and leaves no trace of a run that was never there", "[unsanitized]") {
  unsetenv("GOMP_SPINCOUNT");  // users have none: the program starts itself twice
  for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) {
    const Workplace place;
    Process process(place.scratch.path(), late_rank(place), 1, "mpirun");
    const pid_t rank = starting_rank(place, process);
    REQUIRE(rank > 0);
    kill(rank, signal);
    const Ended ended = process.wait();
    INFO("signal " << signal << "\n" << ended.out << ended.err);
    CHECK(ended.code == 75);
    CHECK_THAT(ended.err, ContainsSubstring("before the first step"));
    CHECK_FALSE(std::filesystem::exists(place.scratch / "runs/tiny"));
  }
}

TEST_CASE("a run that is stopped while it starts again keeps what it has, and continues to the same bits") {
  unsetenv("GOMP_SPINCOUNT");
  const Workplace place;
  succeed(place.train({"train.name=whole"}));
  {
    Process first(place.scratch.path(), Workplace::arguments({"train.steps=20"}));
    while (first.running() && place.lines("tiny") < 7) usleep(200);
    first.signal(SIGTERM);
    const int code = first.wait().code;
    REQUIRE((code == 75 || code == 0));
  }
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    Process again(place.scratch.path(), Workplace::arguments({"train.steps=20"}));
    while (again.running() && again.pid() > 0 && !catches(again.pid(), SIGTERM)) usleep(100);
    again.signal(signal);
    const Ended ended = again.wait();
    INFO("signal " << signal << ": " << ended.code << "\n" << ended.err);
    const Json exit = Json::parse(place.run("tiny", "exit.json"));
    CHECK((ended.code == 75 || exit.at("step") == 20));
    CHECK(exit.at("step").get<int64_t>() >= 5);
  }
  succeed(place.train({"train.steps=20"}));
  CHECK(place.metrics("tiny") == place.metrics("whole"));
  CHECK(place.differ("tiny", "whole") == 0);
}

TEST_CASE("a request to stop while the machines are checked, or just before, ends before the first step", "[unsanitized]") {
  unsetenv("GOMP_SPINCOUNT");
  for (const int ranks : {1, 2})
    for (const useconds_t later : {0, 100000}) {
      const Workplace place;
      Process run(place.scratch.path(), Workplace::arguments({"train.check_start=true", "train.microbatch=1"}), ranks);
      while (run.running() && !std::filesystem::exists(place.scratch / "runs/tiny/lock")) usleep(1000);
      usleep(later);
      run.signal(SIGUSR1);
      const Ended ended = run.wait();
      INFO(ranks << " ranks, " << later << "\n" << ended.out << ended.err);
      CHECK(ended.code == 75);
      CHECK_THAT(ended.err, ContainsSubstring("stopped by SIGUSR1 before the first step"));
      CHECK_FALSE(std::filesystem::exists(place.scratch / "runs/tiny"));
    }
}

TEST_CASE("a run under nohup outlives its terminal, and another one saves when its terminal is closed") {
  const Workplace place;
  for (const bool ignored : {true, false}) {
    const std::vector<std::string> settings{"train.steps=400", "train.eval_every=0",
                                            std::string("train.name=") + (ignored ? "nohup" : "plain")};
    std::vector<std::string> words{std::string(TRIREME_BUILD) + "/trireme"};
    for (const std::string& word : Workplace::arguments(settings)) words.push_back(word);
    Process run(place.scratch.path(), ignored ? words : std::vector<std::string>(words.begin() + 1, words.end()), 1,
                ignored ? "nohup" : words.front());
    while (run.running() && place.lines(ignored ? "nohup" : "plain") < 5) usleep(200);
    run.signal(SIGHUP);
    const Ended ended = run.wait();
    INFO(ended.err);
    CHECK(ended.code == (ignored ? 0 : 75));
  }
}

}  // namespace trireme
