// Each signal to each process at each moment of a run of 1, 2 and 4 ranks: no step is lost, what is saved is whole, and it
// continues.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/clock.h"
#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/launched_training.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int kStorm = 0;  // five requests within a few milliseconds
constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, kStorm};
const std::vector<std::string> kTargets{
    "rank 0", "last rank", "mpirun", "supervise", "supervise and all below", "mpirun of supervise"};
const std::vector<std::string> kMoments{"start", "MPI_Init", "loading", "first step", "training", "saving", "evaluating", "ending"};

struct Stop {
  int signal;
  std::string target, moment;
  int ranks;

  bool supervised() const { return target.find("supervise") != std::string::npos; }
  std::string name() const {
    return (signal == kStorm ? std::string("storm") : std::string("SIG") + sigabbrev_np(signal)) + " to " + target + ", " + moment +
           ", " + std::to_string(ranks) + " ranks";
  }
};

struct Run {
  const Workplace& place;
  const Stop& stop;
  Process process;
  bool forgotten = false;  // by the launcher: the first request
  std::string sent;        // the processes that were signalled

  Run(const Workplace& where, const Stop& what)
      : place(where), stop(what), process(where.scratch.path(), words(what), 1, program(what)) {}

  static std::string program(const Stop& stop) {
    return stop.supervised() || stop.ranks == 1 ? std::string(TRIREME_BUILD) + "/trireme" : "mpirun";
  }
  static std::vector<std::string> words(const Stop& stop) {
    std::vector<std::string> words;
    if (stop.supervised()) words = {"supervise", "--max-restarts", "0", "--"};
    if (stop.supervised() && stop.ranks > 1) words.emplace_back("mpirun");
    if (stop.ranks > 1) words.insert(words.end(), {"--oversubscribe", "-n", std::to_string(stop.ranks)});
    if (stop.supervised() || stop.ranks > 1) words.push_back(std::string(TRIREME_BUILD) + "/trireme");
    const bool ends = stop.moment == "ending";
    std::vector<std::string> settings{ends ? "train.steps=30" : "train.steps=100000", "train.microbatch=1", "checkpoint.every=7",
                                      "checkpoint.command=sleep " + std::string(ends ? "0.5" : "0")};
    for (const std::string& word : Workplace::arguments(settings)) words.push_back(word);
    return words;
  }

  bool reached() {
    const std::string run = place.scratch / "runs/tiny";
    const std::string& moment = stop.moment;
    if (moment == "start" || moment == "MPI_Init") return !targets().empty();
    if (moment == "loading") return fs::exists(run + "/lock");
    if (moment == "first step") return place.lines("tiny") >= 1;
    if (moment == "training") return place.lines("tiny") >= 20;
    if (moment == "evaluating") return place.run("tiny", "metrics.jsonl").find("\"step\": 10") != std::string::npos;
    if (moment == "ending") return fs::exists(run + "/exit.json");
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints", error))
      if (entry.path().extension() == ".tmp" && place.lines("tiny") >= 14) return true;
    return false;
  }

  // The process, unless it is the copy of another that is about to become it.
  static bool is_itself(pid_t process) {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/" + std::to_string(process) + "/exe", error);
    const std::string name = fs::canonical("/proc/self/exe", error).filename();
    return program.filename() != name && !program.empty();
  }

  // The mpirun of a supervisor: none, or one.
  std::vector<pid_t> launcher() const {
    std::vector<pid_t> found = process.children();
    std::erase_if(found, [](pid_t child) {
      std::error_code error;
      return !is_mpirun(fs::read_symlink("/proc/" + std::to_string(child) + "/exe", error));
    });
    return found;
  }

  // Empty until it runs its own program.
  std::vector<pid_t> targets() const {
    const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
    if (stop.ranks > 1 && stop.target.find("rank") != std::string::npos) {
      const auto rank = ranks.find(stop.target == "rank 0" ? 0 : stop.ranks - 1);
      return rank == ranks.end() ? std::vector<pid_t>() : std::vector{rank->second};
    }
    if (stop.target == "mpirun of supervise") return launcher();
    if (!is_itself(process.pid())) return {};
    std::vector<pid_t> found{process.pid()};
    if (stop.target == "supervise and all below") {
      for (const pid_t child : process.children()) found.push_back(child);
      for (const auto& [number, rank] : ranks) found.push_back(rank);
    }
    return found;
  }

  bool ends_within(double seconds) {
    for (const auto begin = Clock::now(); process.running() && seconds_since(begin) < seconds;) usleep(5000);
    return !process.running();
  }

  // Returns the exit code.
  int end() {
    while (process.running() && !reached()) usleep(300);
    usleep(stop.moment == "start" ? 10000 : stop.moment == "MPI_Init" ? 120000 : 0);
    const std::vector<int> storm{SIGTERM, SIGUSR1, SIGUSR2, SIGTERM, SIGUSR1};
    const auto ask = [&] {
      for (const int signal : stop.signal == kStorm ? storm : std::vector<int>{stop.signal}) {
        std::vector<pid_t> aims = targets();
        for (int wait = 0; aims.empty() && process.running() && wait < 1000; ++wait) usleep(1000), aims = targets();
        for (const pid_t aim : aims)
          if (process.running()) kill(aim, signal), sent += " " + std::to_string(aim);
        if (stop.signal == kStorm) usleep(3000);
      }
    };
    ask();
    // In its first milliseconds mpirun has no ranks to pass SIGUSR1 and SIGUSR2 to, and forgets them: one asks again.
    const bool passed_on = stop.signal == SIGUSR1 || stop.signal == SIGUSR2;
    if (passed_on && stop.target.starts_with("mpirun") && stop.moment == "start" && !ends_within(10)) forgotten = true, ask();
    const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
    const int code = process.wait().code;
    for (const auto begin = Clock::now(); any_alive(ranks) && seconds_since(begin) < 60;) usleep(5000);
    CHECK_FALSE(any_alive(ranks));
    return code;
  }
};

int64_t newest_on_disk(const Workplace& place) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(place.scratch / "runs/tiny/checkpoints", error))
    if (fs::exists(entry.path() / "manifest.json") && entry.path().extension().empty())
      newest = std::max<int64_t>(newest, std::stoll(entry.path().filename().string().substr(5)));
  return newest;
}

std::string outcome(const Stop& stop) {
  unsetenv("GOMP_SPINCOUNT");  // users have none: the program starts itself twice
  const Workplace place;
  Run run(place, stop);
  const int code = run.end();
  const std::string exit = place.run("tiny", "exit.json");
  const int said = exit.empty() ? -1 : Json::parse(exit).at("code").get<int>();
  int64_t last = 0;
  for (const Json& line : place.metrics("tiny")) last = std::max(last, line.at("step").get<int64_t>());
  const int64_t saved = newest_on_disk(place);
  INFO(stop.name() << ": signalled" << run.sent << "; code " << code << ", exit.json says " << said << ", step " << last
                   << ", saved " << saved);
  CHECK(saved == last);  // nothing is lost
  if (saved > 0) {
    CHECK(run_trireme(place.scratch.path(), {"checkpoint", "verify", "runs/tiny"}).code == 0);
    CHECK(place.train({"train.microbatch=1", "train.steps=" + std::to_string(saved + 2)}).code == 0);
  }
  const bool launcher = stop.target == "mpirun";
  const bool known = code == 75 || code == 0 || (launcher && (code == 1 || code > 128)) ||
                     (stop.moment == "start" && code > 128 && !stop.supervised());
  CHECK(known);
  CHECK((code != 0 || stop.moment == "ending"));
  return std::to_string(code) + (run.forgotten ? ", asked twice" : "") +
         (code == 75 || code == 0 ? ""
          : said == 75            ? ", exit.json 75"
                                  : ", before its first step");
}

void check(const std::vector<Stop>& stops) {
  std::map<std::string, std::map<std::string, int>> table;
  for (const Stop& stop : stops) ++table[stop.target + (stop.ranks > 1 ? " of several" : " alone")][outcome(stop)];
  std::string lines;
  for (const auto& [target, counts] : table)
    for (const auto& [code, count] : counts) lines += target + ": " + std::to_string(count) + " ended with " + code + "\n";
  WARN(stops.size() << " stops\n" << lines);
}

}  // namespace

TEST_CASE("whatever stops whichever process when, no step is lost", "[unsanitized]") {
  check({{SIGTERM, "rank 0", "training", 1},
         {kStorm, "last rank", "saving", 2},
         {SIGINT, "mpirun", "evaluating", 2},
         {SIGUSR1, "mpirun", "first step", 2},
         {SIGHUP, "supervise", "loading", 2},
         {SIGTERM, "supervise", "MPI_Init", 2},
         {SIGTERM, "supervise and all below", "training", 2},
         {SIGTERM, "mpirun of supervise", "training", 2}});
}

namespace {

void check_all(int ranks) {
  std::vector<Stop> stops;
  for (const std::string& target : kTargets)
    for (const std::string& moment : kMoments)
      for (const int signal : kSignals)
        if (ranks > 1 || target == "rank 0" || target == "supervise") stops.push_back({signal, target, moment, ranks});
  check(stops);
}

}  // namespace

TEST_CASE("all signals to all processes at all moments of one rank: no step is lost", "[.][soak]") { check_all(1); }
TEST_CASE("all signals to all processes at all moments of two ranks: no step is lost", "[.][soak]") { check_all(2); }
TEST_CASE("all signals to all processes at all moments of four ranks: no step is lost", "[.][soak]") { check_all(4); }

}  // namespace trireme
