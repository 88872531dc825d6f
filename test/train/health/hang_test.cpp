// Ranks that hang: stopped, looping, out of step. The culprit is named, and all end.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "base/philox.h"
#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "parallel/host_collectives.h"
#include "parallel/mesh.h"
#include "test/catch.h"
#include "test/train/starvation.h"
#include "test/train/workplace.h"
#include "train/health/watchdog.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

// The rank in which something goes wrong: 1, unless the environment says otherwise.
int64_t culprit() {
  const std::string said = environment("HANG_RANK");
  return said.empty() ? 1 : std::stoll(said);
}

// Ranks, one of which fails after some good collectives. They return how long after it they end.
void out_of_step(const std::function<void(const Mesh&, Stream&, Tensor, Journal&)>& wrong) {
  const World world;
  Journal journal(world.rank());
  journal.connect(world);
  Mesh mesh(world, {});
  mesh.keep(journal);
  std::atomic<Clock::time_point> wrong_since{Clock::now()};
  const auto tell = [&](const std::string& line) {
    complain(std::string(text("told after ", seconds_since(wrong_since), " s: ", line)));
  };
  Watchdog watchdog(
      journal, world.rank(),
      {.patience = 0.5,
       .warn = [&](Watchdog::Warning, const Watchdog::Finding& found) { tell("warning: " + found.verdict.line); },
       .report = [&](const Watchdog::Finding& found) { tell("verdict: " + found.verdict.line + "; stack " + found.stack); }});
  Device device(Place::cpu, read_cpu_facts());
  std::vector<float> numbers(64, 1.0f);
  const Tensor x(numbers.data(), Dtype::f32, Place::cpu, {64});
  for (int64_t step = 1; step <= 10; ++step) {
    journal.begin(step);
    run(mesh.dp(), device.compute(), AllReduce{.x = x});
    watchdog.took(0.001);
  }
  journal.doing("training");
  if (!environment("HANG_STARVED").empty()) starve_this_thread();
  wrong_since = Clock::now();
  wrong(mesh, device.compute(), x, journal);
  complain("nothing was noticed");
}

}  // namespace

TEST_CASE("hang: a rank loops for ever", "[.launched]") {
  out_of_step([](const Mesh& mesh, Stream& compute, Tensor x, Journal&) {
    const auto begin = Clock::now();
    while (mesh.dp().rank() == culprit() && seconds_since(begin) < 60) x.as<float>()[0] += 1;
    run(mesh.dp(), compute, AllReduce{.x = x});
  });
}

TEST_CASE("hang: a rank leaves a collective out", "[.launched]") {
  out_of_step([](const Mesh& mesh, Stream& compute, Tensor x, Journal& journal) {
    if (mesh.dp().rank() != culprit()) run(mesh.dp(), compute, AllReduce{.x = x});
    journal.begin(11);
    largest(mesh.all(), 0);
  });
}

TEST_CASE("hang: a rank does another collective", "[.launched]") {
  out_of_step([](const Mesh& mesh, Stream& compute, Tensor x, Journal&) {
    if (mesh.dp().rank() != culprit()) {
      run(mesh.dp(), compute, AllReduce{.x = x});
    } else {
      run(mesh.dp(), compute, Broadcast{.x = x, .root = 0});
    }
  });
}

TEST_CASE("hang: a rank does the collective with fewer bytes", "[.launched]") {
  out_of_step([](const Mesh& mesh, Stream& compute, Tensor x, Journal&) {
    run(mesh.dp(), compute, AllReduce{.x = mesh.dp().rank() == culprit() ? x.slice(0, 32) : x});
  });
}

TEST_CASE("hang: a rank does the collective with more bytes", "[.launched]") {
  out_of_step([](const Mesh& mesh, Stream& compute, Tensor x, Journal&) {
    run(mesh.dp(), compute, AllReduce{.x = mesh.dp().rank() == culprit() ? x : x.slice(0, 32)});
  });
}

TEST_CASE("hang: a rank waits for its disk for ever", "[.launched]") {
  out_of_step([](const Mesh& mesh, Stream& compute, Tensor x, Journal& journal) {
    if (mesh.dp().rank() == culprit()) {
      journal.doing("saving");
      std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    run(mesh.dp(), compute, AllReduce{.x = x});
  });
}

namespace {

// Seconds from the hang to the first line that names this rank; a disk may be waited for after that line.
double first_told(const std::string& err, const std::string& rank) {
  const std::string begin = "told after ";
  const size_t at = err.find(begin);
  REQUIRE(at != std::string::npos);
  const std::string line = err.substr(at, err.find('\n', at) - at);
  CHECK_THAT(line, ContainsSubstring(": " + rank + " on "));
  return std::stod(line.substr(begin.size()));
}

}  // namespace

TEST_CASE("ranks of which one hangs end with 71, and the one that did it is named with what it did", "[unsanitized]") {
  struct Case {
    const char* test;
    std::string culprit, where;
  };
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const Case& c : {Case{"hang: a rank loops for ever", "rank 1", "last in all_reduce dp #10"},
                        Case{"hang: a rank leaves a collective out", "rank 1", "agree all #1"},
                        Case{"hang: a rank does another collective", "rank 1", "is in broadcast dp #11"},
                        Case{"hang: a rank does the collective with fewer bytes", "rank 1", "others in all_reduce dp #11"},
                        Case{"hang: a rank does the collective with more bytes", "rank 1", "others in all_reduce dp #11"},
                        Case{"hang: a rank waits for its disk for ever", "rank 1", "saving"}}) {
    INFO(c.test);
    const auto begin = Clock::now();
    const Ended ended = run_launched({self, c.test}, 3);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 71);
    const size_t at = ended.err.find("verdict: ");
    REQUIRE(at != std::string::npos);
    CHECK(ended.err.substr(at).starts_with("verdict: " + c.culprit + " on "));
    CHECK_THAT(ended.err, ContainsSubstring(c.where) && !ContainsSubstring("nothing was noticed"));
    CHECK(ended.err.find("verdict: ", at + 1) == std::string::npos);
    CHECK(first_told(ended.err, c.culprit) < 5);
    CHECK(seconds_since(begin) < 15);
  }
}

TEST_CASE(
    "a run of which one rank is stopped names it, ends every process with 71, and the same command continues to the same bits",
    "[unsanitized]") {
  const Workplace place;
  const auto named = [](const std::string& name) {
    return std::vector<std::string>{"train.name=" + name,  "train.steps=1500",   "train.hang_after=1",
                                    "checkpoint.every=50", "train.eval_every=0", "parallel.dp=2"};
  };
  succeed(place.train(named("whole"), 2));
  Process process(place.scratch.path(), Workplace::arguments(named("stopped")), 2);
  while (process.running() && place.lines("stopped") < 60) usleep(1000);
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
  REQUIRE(ranks.size() == 2);
  const auto begin = Clock::now();
  kill(ranks.at(1), SIGSTOP);
  const Ended ended = process.wait();
  const double took = seconds_since(begin);
  INFO(ended.err);
  CHECK(ended.code == 71);
  CHECK(took < 20);
  CHECK_THAT(ended.err, ContainsSubstring("hang: rank 1 on ") && ContainsSubstring("is stopped by a signal"));
  const Json exit = Json::parse(place.run("stopped", "exit.json"));
  CHECK(exit.at("code") == 71);
  CHECK(exit.at("rank") == 1);
  for (int wait = 0; wait < 30 && any_alive(ranks); ++wait) usleep(100000);
  CHECK_FALSE(any_alive(ranks));
  succeed(place.train(named("stopped"), 2));
  CHECK(place.metrics("stopped") == place.metrics("whole"));
  CHECK(place.differ("stopped", "whole") == 0);
}

TEST_CASE("nodes exchange reports on their ranks, and one verdict names the rank at fault wherever it is", "[unsanitized]") {
  const Workplace place;
  for (const std::vector<int>& stopped : {std::vector{3}, std::vector{0}, std::vector{2, 3}}) {
    const std::string name = "stopped-" + std::to_string(stopped.front()) + "-" + std::to_string(stopped.size());
    Process process(place.scratch.path(),
                    Workplace::arguments({"train.name=" + name, "train.steps=100000", "train.hang_after=0.5", "train.eval_every=0",
                                          "train.microbatch=1", "parallel.two_level=true", "parallel.node_ranks=2"}),
                    4);
    while (process.running() && place.lines(name) < 30) usleep(1000);
    const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
    REQUIRE(ranks.size() == 4);
    for (const int rank : stopped) kill(ranks.at(rank), SIGSTOP);
    const Ended ended = process.wait();
    INFO(ended.err);
    CHECK(ended.code == 71);
    const std::string wanted =
        stopped.size() == 1 ? "hang: rank " + std::to_string(stopped.front()) + " on " : "; node 1 has reported nothing";
    CHECK_THAT(ended.err, ContainsSubstring(wanted));
    CHECK(ended.err.find("hang: ", ended.err.find("hang: ") + 1) == std::string::npos);  // reported once
    const Json exit = Json::parse(place.run(name, "exit.json"));
    CHECK(exit.at("code") == 71);
    CHECK(exit.at("host") == (stopped.size() == 1 ? host_name() : ""));
    if (stopped.size() == 1) CHECK(exit.at("rank") == stopped.front());
    // A rank may wait for a report from another node for six seconds, once mpirun has let it continue.
    for (int wait = 0; wait < 300 && any_alive(ranks); ++wait) usleep(100000);
    CHECK_FALSE(any_alive(ranks));
  }
}

TEST_CASE("nodes whose board is slow to read reach their verdict all the same", "[unsanitized]") {
  const Workplace place;
  setenv("LD_PRELOAD", TRIREME_BUILD "/test/libfaulty_disk.so", 1);
  setenv("FAULTY_KIND", "slow", 1);
  setenv("FAULTY_BELOW", "/hang-", 1);
  Process process(place.scratch.path(),
                  Workplace::arguments({"train.name=slow", "train.steps=100000", "train.hang_after=1", "train.eval_every=0",
                                        "train.microbatch=1", "parallel.two_level=true", "parallel.node_ranks=2"}),
                  4);
  for (const char* name : {"LD_PRELOAD", "FAULTY_KIND", "FAULTY_BELOW"}) unsetenv(name);
  while (process.running() && place.lines("slow") < 30) usleep(1000);
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
  REQUIRE(ranks.size() == 4);
  const auto begin = Clock::now();
  kill(ranks.at(3), SIGSTOP);
  while (process.running() && place.run("slow", "log.txt").find("hang: ") == std::string::npos && seconds_since(begin) < 60)
    usleep(10000);
  const double took = seconds_since(begin);
  const Ended ended = process.wait();
  INFO("a verdict after " << took << " s\n" << ended.err);
  CHECK(ended.code == 71);
  CHECK_THAT(ended.err, ContainsSubstring("hang: rank 3 on ") && ContainsSubstring("is stopped by a signal"));
  CHECK(took < 8);  // the wait of a second, and a few reports that take 0.75 s each
  WARN("a verdict after " << took << " s");
}

TEST_CASE("two hundred hangs, each with the right rank named in time", "[.][soak]") {
  const Workplace place;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::vector<std::string> tests{"hang: a rank loops for ever",
                                       "hang: a rank leaves a collective out",
                                       "hang: a rank does another collective",
                                       "hang: a rank does the collective with fewer bytes",
                                       "hang: a rank does the collective with more bytes",
                                       "hang: a rank waits for its disk for ever"};
  constexpr uint64_t kKinds = 7;  // these, and a rank that is stopped in a run
  // Patience of half a second or one second, twelve times that for an announced wait for a disk;
  // starting and ending included.
  const auto in_time = [&](uint64_t kind) { return kind + 1 == tests.size() ? 13.0 : 8.0; };
  const std::string fewer = environment("HANGS");  // for a slice
  const uint64_t hangs = fewer.empty() ? 200 : std::stoull(fewer);
  std::map<uint64_t, double> slowest, told;
  for (uint64_t i = 0; i < hangs; ++i) {
    const uint64_t dice = philox64(21, i);
    const auto rank = static_cast<int>(dice % 4);
    INFO("hang " << i << " of rank " << rank);
    Ended ended;
    auto begin = Clock::now();
    const uint64_t kind = i % kKinds;
    const bool launched = kind < tests.size();
    if (launched) {
      setenv("HANG_RANK", std::to_string(rank).c_str(), 1);
      ended = run_launched({self, tests[kind]}, 4);
      unsetenv("HANG_RANK");
    } else {
      Process process(place.scratch.path(),
                      Workplace::arguments({"train.name=run-" + std::to_string(i), "train.steps=100000", "train.hang_after=1",
                                            "train.eval_every=0", "train.microbatch=1"}),
                      4);
      const auto lines = static_cast<int64_t>(20 + dice / 4 % 100);
      while (process.running() && place.lines("run-" + std::to_string(i)) < lines) usleep(500);
      const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
      REQUIRE(ranks.contains(rank));
      begin = Clock::now();
      kill(ranks.at(rank), SIGSTOP);
      ended = process.wait();
    }
    const double took = seconds_since(begin);
    slowest[kind] = std::max(slowest[kind], took);
    INFO(ended.err);
    REQUIRE(ended.code == 71);
    REQUIRE_THAT(ended.err, ContainsSubstring((launched ? "verdict: rank " : "hang: rank ") + std::to_string(rank) + " on "));
    REQUIRE(took < in_time(kind));
    if (launched) told[kind] = std::max(told[kind], first_told(ended.err, "rank " + std::to_string(rank)));
    REQUIRE(told[kind] < 5);
  }
  for (const auto& [kind, seconds] : slowest)
    WARN((kind < tests.size() ? tests[kind] : "hang: a rank is stopped")
         << ": the slowest told after " << told[kind] << " s and ended in " << seconds << " s");
}

namespace {

// Runs four ranks for so many seconds, longer if they are slow. Now one, now another is held up,
// mostly for part of a step's time, at most for three of the five seconds of `train.hang_after`: no
// hang may be reported.
void check_patience(double seconds) {
  constexpr int64_t kBefore = 30, kHeld = 30;  // lines of steps that nothing disturbs, and after them
  const Workplace place;
  Process process(place.scratch.path(),
                  Workplace::arguments({"train.steps=1000000000", "train.microbatch=1", "parallel.tp=2", "train.eval_every=0",
                                        "checkpoint.every=500", "train.name=held"}),
                  4);
  while (process.running() && place.lines("held") < kBefore) usleep(1000);
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
  REQUIRE(ranks.size() == 4);
  uint64_t stops = 0;
  double longest = 0;
  int64_t waited = 0;  // the most steps that ended in the second half of a hold-up of more than a second
  const auto begin = Clock::now();
  const auto enough = [&] { return seconds_since(begin) >= seconds && place.lines("held") >= kBefore + kHeld; };
  for (; process.running() && !enough(); ++stops) {
    const double chance = static_cast<double>(philox64(41, stops) % 10000) / 10000;
    const double held = 0.01 * std::pow(300, chance);  // each tenfold as often as the others
    const pid_t rank = ranks.at(static_cast<int>(philox64(42, stops) % 4));
    kill(rank, SIGSTOP);
    usleep(static_cast<useconds_t>(0.5e6 * held));
    const int64_t halfway = place.lines("held");
    usleep(static_cast<useconds_t>(0.5e6 * held));
    if (held > 1) waited = std::max(waited, place.lines("held") - halfway);
    kill(rank, SIGCONT);
    longest = std::max(longest, held);
    usleep(static_cast<useconds_t>(philox64(43, stops) % 100000));
  }
  kill(ranks.at(2), SIGTERM);
  const Ended ended = process.wait();
  INFO(ended.err);
  REQUIRE(ended.code == 75);
  CHECK_THAT(ended.err, !ContainsSubstring("hang") && !ContainsSubstring("warning"));
  std::vector<double> steps;
  std::istringstream lines(place.run("held", "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const Json entry = Json::parse(line); entry.contains("step_ms")) steps.push_back(entry["step_ms"]);
  std::sort(steps.begin(), steps.end());
  REQUIRE(std::ssize(steps) > kBefore);  // they got on
  const double usual = steps[steps.size() / 2], worst = steps.back();
  CHECK(longest > 1);
  CHECK(waited <= 2);  // of steps that were over before: all ranks wait for the one that is held up
  WARN(steps.size() << " steps, half of them within " << usual << " ms, the longest " << worst << " ms; " << stops
                    << " times a rank was held up, at most for " << longest << " s: no alarm");
}

}  // namespace

TEST_CASE("ranks that are held up, but get on, are not taken for hung", "[unsanitized]") { check_patience(8); }

TEST_CASE("ranks that are held up for an hour, but get on, are not taken for hung", "[.][soak]") { check_patience(3600); }

TEST_CASE("a hundred deaths each of a rank, its launcher and its supervisor", "[.][soak]") {
  const Workplace place;
  const std::string program = std::string(TRIREME_BUILD) + "/trireme";
  double slowest = 0;
  int stayed = 0;  // mpirun 4.1 may, if a rank dies while it connects to it
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t dice = philox64(22, i);
    std::vector<std::string> words{"mpirun", "--oversubscribe", "-n", "4", program};
    if (i % 3 == 2) words.insert(words.begin(), {program, "supervise", "--max-restarts", "0", "--"});
    for (const std::string& word : Workplace::arguments(
             {"train.name=run-" + std::to_string(i), "train.steps=100000", "train.eval_every=0", "train.microbatch=1"}))
      words.push_back(word);
    Process process(place.scratch.path(), {words.begin() + 1, words.end()}, 1, words.front());
    std::map<int, pid_t> ranks;
    while (process.running() && ranks.size() < 4) ranks = launched_ranks(place.scratch.path()), usleep(2000);
    usleep(static_cast<useconds_t>(dice % 500000));
    const auto begin = Clock::now();
    i % 3 == 0 ? void(kill(ranks.at(static_cast<int>(dice / 7 % 4)), SIGKILL)) : process.signal(SIGKILL);
    while (any_alive(ranks) && seconds_since(begin) < 10) usleep(1000);
    slowest = std::max(slowest, seconds_since(begin));
    INFO("death " << i);
    REQUIRE(seconds_since(begin) < 3);
    while (process.running() && seconds_since(begin) < 3) usleep(1000);
    if (process.running()) ++stayed, process.signal(SIGKILL);
    process.wait();
  }
  CHECK(stayed <= 10);
  WARN("300 deaths, the slowest end of all ranks in " << slowest << " s; mpirun stayed without ranks " << stayed << " times");
}

TEST_CASE("no rank stays behind when its launcher is killed", "[unsanitized]") {
  const Workplace place;
  Process process(place.scratch.path(), Workplace::arguments({"train.steps=100000", "train.eval_every=0"}), 2);
  while (process.running() && place.lines("tiny") < 5) usleep(1000);
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
  REQUIRE(ranks.size() == 2);
  process.signal(SIGKILL);
  process.wait();
  const auto begin = Clock::now();
  while (any_alive(ranks) && seconds_since(begin) < 10) usleep(1000);
  CHECK(seconds_since(begin) < 3);
}

}  // namespace trireme
