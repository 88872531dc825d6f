#include "train/telemetry/time_left.h"

#include "test/catch.h"

using namespace trireme;

namespace {

TimeLeft of_steps(const RunSchedule& schedule, int count, double seconds) {
  TimeLeft left(schedule);
  for (int i = 0; i < count; ++i) left.step(seconds);
  return left;
}

}  // namespace

TEST_CASE("the time left is that of the steps, evaluations and saves that are still to come") {
  const RunSchedule schedule{.steps = 100, .eval_every = 20, .save_every = 50, .evaluation_in_steps = 10};
  TimeLeft left = of_steps(schedule, 10, 2.0);
  CHECK(left.after(10) == Approx(90 * 2 + 5 * 20));  // evaluations after 20, 40, 60, 80 and 100, guessed
  left.evaluation(20, "", 30);
  left.save(4);
  CHECK(left.after(20) == Approx(80 * 2 + 4 * 30 + 2 * 4));
  left.evaluation(20, "questions", 10);
  CHECK(left.after(20) == Approx(80 * 2 + 4 * 40 + 2 * 4));
  CHECK(left.after(39) == Approx(61 * 2 + 4 * 40 + 2 * 4));
  CHECK(left.after(40) == Approx(60 * 2 + 4 * 40 + 2 * 4));       // the one after step 40 is still to come,
  CHECK(left.after(40, 0.75) == Approx(60 * 2 + 3.25 * 40 + 8));  // or has begun,
  left.evaluation(40, "", 30);
  CHECK(left.after(40) == Approx(60 * 2 + 3 * 40 + 2 * 4));  // or is done
  CHECK(left.after(50) == Approx(50 * 2 + 3 * 40 + 4));
  CHECK(left.after(100) == Approx(40 + 4));
  left.evaluation(100, "", 30);
  CHECK(left.after(100) == Approx(4));
}

TEST_CASE("a run that evaluates nothing waits for no evaluation") {
  CHECK(of_steps({.steps = 10, .eval_every = 2}, 5, 1).after(5) == Approx(5));
  CHECK(of_steps({.steps = 10, .evaluation_in_steps = 10}, 5, 1).after(5) == Approx(5));
  CHECK(TimeLeft({.steps = 10}).after(0) == 0);
}

TEST_CASE("single steps that take a hundred times as long hardly change speed and time left") {
  TimeLeft left({.steps = 1000});
  for (int i = 0; i < 200; ++i) left.step(i % 20 == 7 ? 100 : 1);
  CHECK(left.usual_step() == Approx(1.1));      // 19 of 1 and one that counts 3
  CHECK(left.after(0) == Approx(1000 * 1.45));  // 95 of 1 and five that count 10
  for (int i = 0; i < 100; ++i) left.step(4);
  CHECK(left.usual_step() == Approx(4));  // a slower machine is one after a while
  CHECK(left.after(0) == Approx(4000));
}
