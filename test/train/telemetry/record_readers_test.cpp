#include "train/telemetry/record_readers.h"

#include <atomic>
#include <thread>

#include "base/error.h"
#include "test/catch.h"

using namespace trireme;
using namespace std::chrono_literals;

namespace {

struct Seen {
  std::vector<int64_t> steps{};
  std::atomic<bool> open{true}, gone{false};
  int64_t refuse = -1;
};

// A reader that waits while it is shut, and refuses one step.
class Listener : public RecordReader {
 public:
  explicit Listener(Seen& seen) : seen_(seen) {}
  ~Listener() override { seen_.gone = true; }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  std::string name() const override { return "a listener"; }
  void read(const RunRecord& record) override {
    while (!seen_.open) std::this_thread::sleep_for(1ms);
    const int64_t step = std::get<StepRecord>(record).step;
    if (step == seen_.refuse) throw DataError("no room");
    seen_.steps.push_back(step);
  }
  void caught_up() override {
    if (seen_.refuse > 0) throw DataError("no room yet");
  }

 private:
  Seen& seen_;
};

StepRecord step(int64_t number) { return {.step = number}; }

}  // namespace

TEST_CASE("a reader gets all records in their order, also those that wait at the end") {
  Seen seen;
  {
    RecordQueue queue(std::make_unique<Listener>(seen));
    for (int64_t i = 1; i <= 1000; ++i) queue.send(step(i));
  }
  REQUIRE(seen.steps.size() == 1000);
  for (size_t i = 0; i < 1000; ++i) CHECK(seen.steps[i] == static_cast<int64_t>(i + 1));
}

TEST_CASE("a reader that stands still delays nobody, and one line says that records are missing") {
  Seen seen;
  seen.open = false;
  RecordQueue queue(std::make_unique<Listener>(seen));
  const auto begin = Clock::now();
  for (int64_t i = 1; i <= 20000; ++i) queue.send(step(i));
  CHECK(seconds_since(begin) < 2);
  CHECK(queue.take_warnings() == std::vector<std::string>{"warning: a listener is slow and lacks some records; the run continues"});
  queue.send(step(20001));
  CHECK(queue.take_warnings().empty());
  seen.open = true;
  queue.finish();
  CHECK(seen.steps.size() >= RecordQueue::kMost);
  CHECK(seen.steps.size() <= 2 * RecordQueue::kMost);
}

TEST_CASE("a reader's error is one warning, and it reads on") {
  Seen seen;
  seen.refuse = 3;
  RecordQueue queue(std::make_unique<Listener>(seen));
  for (int64_t i = 1; i <= 5; ++i) queue.send(step(i));
  queue.finish();
  const std::vector<std::string> warnings = queue.take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].starts_with("warning: a listener: no room"));
  CHECK(seen.steps == std::vector<int64_t>{1, 2, 4, 5});
}

TEST_CASE("a reader that hangs at the end is left to itself, with one line") {
  static Seen seen;  // the reader outlives the test
  seen.open = false;
  const auto begin = Clock::now();
  {
    RecordQueue queue(std::make_unique<Listener>(seen), 50ms);
    queue.send(step(1));
    queue.finish();
    CHECK(queue.take_warnings() ==
          std::vector<std::string>{"warning: a listener has not ended in time and is left to itself; the run continues"});
    queue.send(step(2));
    queue.finish();
    CHECK(queue.take_warnings().empty());
  }
  CHECK(seconds_since(begin) < 2);
  CHECK(seen.steps.empty());
  seen.open = true;
  while (!seen.gone) std::this_thread::sleep_for(1ms);
  CHECK(seen.steps.size() == 1);
}
