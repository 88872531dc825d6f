// Runs that are slow because others use the processors: they continue. Hangs on the same machine are
// still named.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/clock.h"
#include "test/catch.h"
#include "test/train/starvation.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// A run that has begun its steps, with a patience of 0.3 seconds.
class Begun {
 public:
  explicit Begun(int ranks)
      : ranks_(ranks),
        process_(place_.scratch.path(),
                 Workplace::arguments({"train.steps=" + std::to_string(kSteps), "train.hang_after=0.3", "train.eval_every=0",
                                       "train.batch=12", "train.microbatch=1", "checkpoint.every=1000"}),
                 ranks) {
    while (process_.running() && place_.lines("tiny") < 30) usleep(1000);
    first_threads_ = ranks > 1 ? launched_ranks(place_.scratch.path()) : std::map<int, pid_t>{{0, process_.pid()}};
    REQUIRE(first_threads_.size() == static_cast<size_t>(ranks));
  }
  pid_t rank(int number) const { return first_threads_.at(number); }
  int64_t lines() const { return place_.lines("tiny"); }
  Process& process() { return process_; }

  static constexpr int kSteps = 300;

 private:
  const Workplace place_;
  const int ranks_;
  Process process_;
  std::map<int, pid_t> first_threads_;
};

constexpr double kStarved = 5;  // seconds: longer than twelve times the patience, which disks have

}  // namespace

TEST_CASE("a lone run without a core continues, and the warning names what has the core", "[unsanitized]") {
  Begun begun(1);
  Starvation starvation;
  starvation.take(begun.rank(0));
  const int64_t before = begun.lines();
  for (const auto begin = Clock::now(); seconds_since(begin) < kStarved;) usleep(10000);
  const int64_t during = begun.lines() - before;
  starvation.end();
  const Ended ended = begun.process().wait();
  INFO(ended.err << during << " steps without a core");
  CHECK(ended.code == 0);
  CHECK(during < Begun::kSteps / 2);
  CHECK_THAT(ended.err, !ContainsSubstring("hang: "));
  CHECK_THAT(ended.err, ContainsSubstring("warning: no progress: rank 0 on ") && ContainsSubstring("since no other rank waits") &&
                            ContainsSubstring("train.hang_after (now 0.3 s)") && ContainsSubstring("kernels.threads") &&
                            ContainsSubstring("load average ") && ContainsSubstring("busiest outside this job: "));
}

TEST_CASE("a rank without a core that others wait for is waited for", "[unsanitized]") {
  Begun begun(3);
  Starvation starvation;
  starvation.take(begun.rank(1));
  for (const auto begin = Clock::now(); seconds_since(begin) < kStarved;) usleep(10000);
  starvation.end();
  const Ended ended = begun.process().wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, !ContainsSubstring("hang: "));
  CHECK_THAT(ended.err, ContainsSubstring("warning: no progress: rank 1 on ") &&
                            ContainsSubstring("since that rank had too little processor time"));
}

TEST_CASE("a rank that is stopped while all have no core is named", "[unsanitized]") {
  Begun begun(3);
  Starvation starvation;
  for (int rank = 0; rank < 3; ++rank) starvation.take(begun.rank(rank));
  kill(begun.rank(2), SIGSTOP);
  const auto begin = Clock::now();
  while (begun.process().running() && begun.process().err().find("hang: ") == std::string::npos) usleep(10000);
  const double verdict = seconds_since(begin);
  starvation.end();  // for the launcher's part of the end, which takes mpirun's own seconds
  const Ended ended = begun.process().wait();
  INFO(ended.err);
  CHECK(ended.code == 71);
  CHECK(verdict < 15);
  CHECK_THAT(ended.err, ContainsSubstring("hang: rank 2 on ") && ContainsSubstring("is stopped by a signal"));
}

TEST_CASE("a rank that leaves a collective out while all have no core is named", "[unsanitized]") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const Starvation starvation;
  setenv("HANG_STARVED", "1", 1);
  const auto begin = Clock::now();
  const Ended ended = run_launched({self, "hang: a rank leaves a collective out"}, 3);
  unsetenv("HANG_STARVED");
  INFO(ended.err);
  CHECK(ended.code == 71);
  CHECK(seconds_since(begin) < 30);
  CHECK_THAT(ended.err, ContainsSubstring("verdict: rank 1 on ") && ContainsSubstring("agree all #1"));
}

}  // namespace trireme
