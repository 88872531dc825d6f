// Requests to a running run, through RUN/control.
#include <signal.h>

#include <chrono>
#include <thread>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// Steps after which a run was evaluated.
std::vector<int64_t> evaluated_steps(const Workplace& place, const std::string& name) {
  std::vector<int64_t> steps;
  for (const Json& line : place.metrics(name))
    if (line.contains("val_loss")) steps.push_back(line.at("step"));
  return steps;
}

// Asks a run once its tenth step is done, waits for these words in a file of the run, and stops it.
void ask(const Workplace& place, const std::string& request, const std::string& file, const std::string& words,
         std::vector<std::string> settings, int ranks = 1) {
  settings.insert(settings.end(), {"train.name=asked", "train.steps=1000000", "train.eval_every=0", "train.microbatch=1"});
  Process process(place.scratch.path(), Workplace::arguments(settings), ranks);
  const auto wait_until = [&](auto done) {
    for (int i = 0; i < 6000 && process.running() && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  wait_until([&] { return place.lines("asked") >= 10; });
  write_text(place.scratch / "runs/asked/control", request);
  wait_until([&] { return place.run("asked", file).find(words) != std::string::npos; });
  process.signal(SIGTERM);
  const Ended ended = process.wait();
  INFO(ended.err);
  if (ranks == 1) CHECK(ended.code == 75);  // mpirun has codes of its own
  CHECK_THAT(place.run("asked", file), ContainsSubstring(words));
}

}  // namespace

TEST_CASE("with train.eval_every 0, a run is evaluated once for each time that its control file asks") {
  const Workplace place;
  succeed(place.train({"train.eval_every=0"}));
  CHECK(evaluated_steps(place, "tiny").empty());
  ask(place, "evaluate\n", "metrics.jsonl", "\"val_loss\"", {});
  CHECK(evaluated_steps(place, "asked").size() == 1);
}

TEST_CASE("copies that are apart are evaluated on request when they have met") {
  const Workplace place;
  ask(place, "evaluate\n", "metrics.jsonl", "\"val_loss\"", {"parallel.local_steps=4", "parallel.zero=0"}, 2);
  const std::vector<int64_t> steps = evaluated_steps(place, "asked");
  REQUIRE(steps.size() == 1);
  CHECK(steps[0] % 4 == 0);
}

TEST_CASE("a request for an evaluation of nothing says what is empty") {
  const Workplace place;
  ask(place, "evaluate", "log.txt", "nothing to evaluate: data.validation and train.eval_choices are empty",
      {"data.validation=[]"});
}

}  // namespace trireme
