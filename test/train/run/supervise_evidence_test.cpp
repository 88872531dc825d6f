// Evidence of supervise on attempts that could say nothing themselves: from the launcher's words, the steps done, the processes.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/attempt.h"
#include "train/run/attempt_watch.h"
#include "train/run/launcher_words.h"

namespace trireme {
namespace {

const std::string kBuiltProgram = std::string(TRIREME_BUILD) + "/trireme";

std::vector<std::string> supervised(std::vector<std::string> words, const std::vector<std::string>& settings) {
  for (const std::string& word : Workplace::arguments(settings)) words.push_back(word);
  return words;
}

std::vector<Json> attempts_in(const Workplace& place) {
  std::vector<Json> attempts;
  std::istringstream in(place.run("tiny", "attempts.jsonl"));
  for (std::string line; std::getline(in, line);) attempts.push_back(Json::parse(line));
  return attempts;
}

Attempt killed(int64_t step, int64_t rank = -1) {
  Attempt attempt{.started = {}, .cause = {}, .host = {}, .message = {}};
  attempt.code = 137, attempt.step = step, attempt.rank = rank;
  return attempt;
}

Clock::time_point at(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1000 + seconds)));
}

}  // namespace

TEST_CASE("launchers say which rank was lost, in words that are understood") {
  const auto found = [](const std::string& words) {
    const std::optional<LostRank> lost = lost_rank("step 7\nwarning: process rank\n" + words + "\nbye\n");
    return lost ? std::to_string(lost->rank) + "@" + lost->host : "nobody";
  };
  CHECK(found("mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).") == "2@vm");
  CHECK(found("prterun noticed that process rank 12 with PID 4711 on node n3 exited on\nsignal 9 (Killed).") == "12@n3");
  CHECK(found("mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The "
              "first process to do so was:\n\n  Process name: [[51234,1],3]\n  Exit code:    70\n") == "3@");
  CHECK(found("  Process name: [prterun-n1-4711@1,5]\n  Exit code:    70") == "5@");
  CHECK(found("srun: error: n2: task 2: Killed") == "2@n2");
  CHECK(found("srun: error: n2: tasks 4-7: Exited with exit code 70") == "4@n2");
  CHECK(found("srun: error: Unable to create step for job 7: Job/step already completing") == "nobody");
  CHECK(found("ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[5,0],0] on node n1\n  Remote daemon: "
              "[[5,0],1] on node n2\n") == "-1@n2");
  CHECK(found("srun: error: Node failure on n3") == "-1@n3");
  CHECK(found("ssh: connect to host n4 port 22: No route to host") == "-1@n4");
  CHECK(found("process rank x with PID 0 on node vm exited on signal 9") == "nobody");
  CHECK(lost_rank("a process rank 1 with PID 5 on node n exited on signal 9 (Killed).")->words ==
        "process rank 1 with PID 5 on node n exited on signal 9 (Killed).");
}

TEST_CASE("kills at steps of their own are no crash loop, and the same rank lost twice is left out at whatever step") {
  using enum Next::Kind;
  CHECK(next_after({killed(7), killed(9), killed(8)}, 10).kind == restart);
  CHECK(next_after({killed(7), killed(7), killed(7)}, 10).kind == give_up);
  CHECK(next_after({killed(-1), killed(-1), killed(-1)}, 10).kind == give_up);
  CHECK(next_after({killed(7), killed(9), killed(8)}, 2).kind == give_up);
  CHECK_FALSE(next_after({killed(7), killed(9)}, 10).fewer);
  CHECK(next_after({killed(7, 2), killed(9, 2)}, 10).fewer);
  CHECK_FALSE(next_after({killed(7, 2), killed(9, 1)}, 10).fewer);
  Attempt saved = killed(9, 2);
  saved.last_checkpoint = 9;
  CHECK_FALSE(next_after({killed(7, 2), saved}, 10).fewer);
}

TEST_CASE("an attempt is judged by its own exit.json, by its steps, and by the launcher's words") {
  const RunFiles before{
      .newest_checkpoint = 5, .exit = {.identity = {1, 1}, .code = 75, .step = 5}, .metrics = {2, 2}, .last_step = 5};
  RunFiles after = before;
  const std::string words = "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).";
  const Attempt unheard = judge_attempt({}, {.code = 1}, before, after);
  CHECK(unheard.code == 1);
  CHECK(unheard.step == -1);
  after.metrics = {2, 3}, after.last_step = 17;
  const Attempt lost = judge_attempt({}, {.code = 137, .heard = words}, before, after);
  CHECK(lost.step == 17);
  CHECK(lost.rank == 2);
  CHECK(lost.host == "vm");
  CHECK(code_when_stopped(lost) == 137);  // steps 6 to 17 are lost
  const Attempt frozen = judge_attempt({}, {.code = 137, .frozen = 60}, before, after);
  CHECK(frozen.code == 71);
  CHECK_THAT(frozen.message, ContainsSubstring("for 60 s"));
  after.newest_checkpoint = 17;
  CHECK(code_when_stopped(judge_attempt({}, {.code = 137}, before, after)) == 75);
  CHECK(code_when_stopped(unheard) == 75);
  CHECK(code_when_stopped(judge_attempt({}, {.code = 2}, before, after)) == 2);
  after.exit = {.identity = {1, 9}, .code = 75, .step = 17, .cause = "signal"};
  CHECK(judge_attempt({}, {.code = 1, .heard = words}, before, after).code == 75);  // mpirun's own code
}

TEST_CASE("only a run without any processor time is frozen: not a slow one, nor one in a debugger, nor one paused with supervise") {
  const auto verdict = [](const std::function<void(int, RunProcesses&)>& change, double pause = 0) {
    AttemptWatch watch(false, 10);
    for (int second = 0; second < 30; ++second) {
      RunProcesses processes{.any = true, .alive = true, .ranks = {41, 42}, .scheduled = 5};
      change(second, processes);
      const double now = second + (second >= 8 ? pause : 0);
      if (const AttemptOrder order = watch.after({.now = at(now), .processes = processes}); order.signal != 0) {
        CHECK(order.ranks == std::vector<pid_t>{41, 42});
        CHECK(watch.frozen() == 10);
        return second;
      }
    }
    return -1;
  };
  CHECK(verdict([](int, RunProcesses&) {}) == 10);
  CHECK(verdict([](int second, RunProcesses& p) { p.scheduled += static_cast<uint64_t>(second / 9); }) == -1);
  CHECK(verdict([](int second, RunProcesses& p) { p.scheduled += second >= 5; }) == 15);
  CHECK(verdict([](int, RunProcesses& p) { p.traced = true; }) == -1);
  CHECK(verdict([](int, RunProcesses& p) { p.ranks.clear(); }) == -1);
  CHECK(verdict([](int, RunProcesses&) {}, 100) == 18);
  CHECK_FALSE(AttemptWatch(false, 0).wants_processes(at(0)));
}

TEST_CASE("a request to stop is repeated to mpirun, which loses it before its ranks run, and to nothing else") {
  for (const bool by_mpirun : {true, false}) {
    AttemptWatch watch(by_mpirun, 0);
    std::vector<int> sent;
    for (int i = 0; i < 100; ++i)
      if (const int signal = watch.after({.now = at(i * 0.1), .stop_signal = i < 10 ? 0 : SIGINT}).signal; signal != 0)
        sent.push_back(signal);
    CHECK(sent == (by_mpirun ? std::vector<int>{SIGUSR1, SIGUSR1, SIGUSR1, SIGUSR1, SIGUSR1} : std::vector<int>{SIGINT}));
  }
}

TEST_CASE("a request to end that waits at mpirun becomes one to its ranks, once and again, and ends the run") {
  AttemptWatch watch(true, 0);
  std::vector<int> sent;
  for (int i = 0; i < 60; ++i) {
    const RunProcesses processes{.any = true, .alive = true, .told_to_end = i >= 20};
    if (const int signal = watch.after({.now = at(i * 0.1), .processes = processes}).signal; signal != 0) sent.push_back(signal);
    CHECK(watch.asked() == (i >= 20));
  }
  CHECK(sent == std::vector<int>{SIGUSR1, SIGUSR1});
  CHECK(judge_attempt({}, {.code = 138, .asked = true}, {}, {}).asked);
  CHECK_FALSE(judge_attempt({}, {.code = 138}, {}, {}).asked);
}

TEST_CASE("ranks killed at steps of their own between two saves are restarted each time, and the run ends with the same bits",
          "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings{"train.steps=600", "train.eval_every=0", "checkpoint.every=0", "train.microbatch=1"};
  Process supervisor(place.scratch.path(), supervised({"supervise", "--", "mpirun", "-n", "2", kBuiltProgram}, settings));
  for (const int64_t lines : {30, 60, 90, 120}) {
    while (supervisor.running() && place.lines("tiny") < lines) usleep(500);
    const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
    REQUIRE(ranks.size() == 2);
    kill(ranks.at(1), SIGKILL);
    const auto recorded = static_cast<size_t>(lines / 30);
    while (supervisor.running() && attempts_in(place).size() < recorded) usleep(1000);
    if (lines < 120)
      while (supervisor.running() && place.lines("tiny") >= lines) usleep(200);  // it begins anew
  }
  const Ended ended = supervisor.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  const std::vector<Json> attempts = attempts_in(place);
  REQUIRE(attempts.size() == 5);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(attempts[i].at("rank") == 1);
    CHECK(attempts[i].at("step").get<int64_t>() >= 25);
  }
  CHECK_THAT(ended.err, ContainsSubstring("process rank 1 with PID"));
}

TEST_CASE("with --elastic a rank that is killed twice, whatever the step, is left out", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings{"train.steps=400", "train.eval_every=0", "checkpoint.every=0", "train.microbatch=1"};
  Process supervisor(place.scratch.path(),
                     supervised({"supervise", "--elastic", "--", "mpirun", "-n", "4", kBuiltProgram}, settings));
  for (const int64_t lines : {20, 35}) {
    while (supervisor.running() && place.lines("tiny") < lines) usleep(500);
    const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());
    REQUIRE(ranks.size() == 4);
    kill(ranks.at(2), SIGKILL);
    while (supervisor.running() && any_alive(ranks)) usleep(1000);
    if (lines == 20)
      while (supervisor.running() && place.lines("tiny") >= lines) usleep(200);
  }
  const Ended ended = supervisor.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("continues with 2 ranks instead of 4"));
}

TEST_CASE("a run whose only rank is stopped from outside is noticed, ended and continued", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings{"train.steps=400", "train.eval_every=0"};
  Process supervisor(place.scratch.path(), supervised({"supervise", "--frozen-after", "2", "--", kBuiltProgram}, settings));
  while (supervisor.running() && place.lines("tiny") < 40) usleep(500);
  const std::vector<pid_t> children = supervisor.children();
  REQUIRE(children.size() == 1);
  kill(children.front(), SIGSTOP);
  const Ended ended = supervisor.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("no rank was given a processor for 2 s") && ContainsSubstring("attempt 1 ended with 71"));
  CHECK(attempts_in(place).front().at("cause") == "frozen");
}

}  // namespace trireme
