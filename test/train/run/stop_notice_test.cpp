// A request to stop: acknowledged at once, obeyed inside an evaluation, and at the second Ctrl-C without a save.
#include "train/run/stop_notice.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/clock.h"
#include "base/json.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// Waits until `text` is in the file, or the process has ended.
bool appears(Process& process, const std::string& path, const std::string& text) {
  while (process.running()) {
    if (read_text(path).find(text) != std::string::npos) return true;
    usleep(2000);
  }
  return false;
}

// A run whose evaluations take far longer than its steps.
const std::vector<std::string> kLongEvaluations{"train.steps=6", "train.eval_every=5", "train.eval_sequences=0",
                                                "data.validation=[shards/train-00000.h5]"};

std::vector<std::string> named(std::vector<std::string> settings, const std::string& name) {
  settings.push_back("train.name=" + name);
  return settings;
}

}  // namespace

TEST_CASE("the line of a request to stop names the step, the signal and what a second Ctrl-C loses") {
  StopNotice notice(false);
  CHECK(notice.line(SIGTERM) == "stopping before training begins (SIGTERM)");
  notice.begun(0), notice.ended(0), notice.saved(0);
  CHECK(notice.line(SIGINT) == "stopping before the first step (SIGINT); press Ctrl-C again to end at once");
  notice.begun(5), notice.ended(4), notice.saved(2);
  CHECK(notice.line(SIGINT) ==
        "stopping: step 5 will be finished and saved (SIGINT); press Ctrl-C again to end at once, losing 3 steps");
  CHECK(notice.line(SIGUSR1) == "stopping: step 5 will be finished and saved (SIGUSR1)");
  notice.ended(5), notice.saved(4), notice.evaluating(true);
  CHECK(notice.line(SIGINT) ==
        "stopping: the evaluation is abandoned, step 5 will be saved (SIGINT); press Ctrl-C again to end at once, losing 1 step");
  notice.evaluating(false), notice.saved(5);
  CHECK(notice.line(SIGINT) == "stopping: step 5 is saved (SIGINT); press Ctrl-C again to end at once");
}

TEST_CASE("a request to stop in an evaluation is acknowledged within a second, and the next start evaluates") {
  const Workplace place;
  succeed(place.train(named(kLongEvaluations, "whole")));
  for (const int ranks : {1, 2}) {
    const std::string name = "stopped-" + std::to_string(ranks), log = place.scratch / ("runs/" + name + "/log.txt");
    std::vector<std::string> settings = named(kLongEvaluations, name);
    if (ranks == 2) settings.emplace_back("parallel.pp=1");
    Process first(place.scratch.path(), Workplace::arguments(settings), ranks);
    REQUIRE(appears(first, log, "step 5/6"));
    usleep(100000);
    ranks == 1 ? first.signal(SIGUSR1) : void(kill(launched_ranks(place.scratch.path()).at(1), SIGUSR1));
    const auto asked = Clock::now();
    CHECK(appears(first, log, "stopping: "));
    if (!kSanitized) CHECK(seconds_since(asked) < 1);
    const Ended ended = first.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 75);
    const std::string lines = place.run(name, "log.txt");
    CHECK_THAT(lines, ContainsSubstring("stopping: the evaluation is abandoned, step 5 ") &&
                          ContainsSubstring("stopped by SIGUSR1 after step 5, which is saved; the same command continues") &&
                          !ContainsSubstring("eval 5/6"));
    succeed(place.train(settings, ranks));
    CHECK_THAT(place.run(name, "log.txt"), ContainsSubstring("eval 5/6") && ContainsSubstring("eval 6/6"));
    if (ranks == 1) CHECK(place.metrics(name) == place.metrics("whole"));
    if (ranks == 1) CHECK(place.differ(name, "whole") == 0);
  }
}

TEST_CASE("an evaluation after the last step is abandoned, too, and the next start finishes the run with it") {
  const Workplace place;
  std::vector<std::string> settings = kLongEvaluations;
  settings.insert(settings.end(), {"train.eval_every=6", "train.name=last"});
  Process first(place.scratch.path(), Workplace::arguments(settings));
  REQUIRE(appears(first, place.scratch / "runs/last/log.txt", "step 6/6"));
  usleep(100000);
  first.signal(SIGTERM);
  CHECK(first.wait().code == 75);
  const Ended second = place.train(settings);
  succeed(second);
  CHECK_THAT(second.out, ContainsSubstring("eval 6/6") && ContainsSubstring("finished 6 steps") && !ContainsSubstring("already"));
  const Ended third = place.train(settings);
  CHECK_THAT(third.out, ContainsSubstring("already finished") && !ContainsSubstring("eval 6/6"));
}

TEST_CASE("a second Ctrl-C ends a run at once, with 130 and a line") {
  const Workplace place;
  Process run(place.scratch.path(), Workplace::arguments(named(kLongEvaluations, "twice")));
  const std::string log = place.scratch / "runs/twice/log.txt";
  REQUIRE(appears(run, log, "step 4/6"));
  run.signal(SIGINT);
  CHECK(appears(run, log, "; press Ctrl-C again to end at once, losing "));
  run.signal(SIGINT);
  const Ended ended = run.wait();
  if (ended.code == 75) {
    WARN("skipped: the step and its save have ended before the second signal");
    return;
  }
  CHECK(ended.code == 130);
  CHECK(
      ended.err ==
      "\nended at once by the second Ctrl-C: steps since the newest checkpoint are lost; the same command continues from there\n");
}

}  // namespace trireme
