// Processor time as the kernel shows it, and what a rank's silence counts for.
#include "train/health/processor_meter.h"

#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "test/catch.h"
#include "train/health/machine_load.h"

namespace trireme {
namespace {

// The line of a thread named "a) b (c", with 1.5 s of processor time; the kernel's other numbers are zeros.
std::string stat_line(char state, int nice, int policy) {
  std::string line = "71 (a) b (c) " + std::string(1, state);
  for (int field = 4; field <= 52; ++field)
    line += " " + std::to_string(field == 14 ? 100 : field == 15 ? 50 : field == 19 ? nice : field == 41 ? policy : 0);
  return line;
}

// One rank's threads, measured every tenth of a second for so long with a limit of one second.
class Case {
 public:
  Case() { report.rank = 3, report.process = 7, report.doing = "training"; }
  using Threads = std::vector<ThreadTimes>;
  Case& at_rest(double seconds) {
    return pass(seconds, [](Threads&, double) {});
  }
  Case& computes(double seconds, double share = 1) {
    return pass(seconds, [=](Threads& threads, double dt) {
      threads[0].state = 'R', threads[0].used += share * dt, threads[0].unserved += (1 - share) * dt, ++threads[0].turns;
    });
  }
  Case& without_core(double seconds) {
    return pass(seconds, [](Threads& threads, double) { threads[0].state = 'R'; });
  }
  // A wait for other ranks that looks, sleeps and looks again, and gets its core late.
  Case& looks(double seconds, bool served) {
    report.entries.assign(1, JournalEntry{.group = {}, .thread = 7, .inside = 1});
    return pass(seconds, [=](Threads& threads, double dt) {
      threads[0].state = 'R';
      if (served) threads[0].used += 0.2 * dt, threads[0].unserved += 0.8 * dt, ++threads[0].turns;
    });
  }
  const ProcessorShare& share() const { return report.share; }

  RankReport report;
  Threads threads{{.thread = 7, .used = 5, .turns = 1}, {.thread = 8, .state = 'R', .turns = 1, .background = true}};

 private:
  Case& pass(double seconds, const std::function<void(Threads&, double)>& work) {
    constexpr double kStep = 0.1;
    for (int i = 0; i < static_cast<int>(seconds / kStep + 0.5); ++i) {
      threads[0].state = 'S';
      work(threads, kStep);
      std::vector reports{report};
      meter_.measure({.seconds = kStep, .counted = kStep, .limit = 1}, reports);
      report = reports.front();
    }
    return *this;
  }
  ProcessorMeter meter_{[this](int32_t) { return threads; }};
};

}  // namespace

TEST_CASE("silence counts while a rank's threads sleep or run, and not while they are ready without a core") {
  CHECK(Case().at_rest(2).share().counted == Approx(2));
  CHECK(Case().computes(2).share().counted == Approx(2));
  CHECK(Case().without_core(2).share().counted == Approx(0.1));  // the first measurement knows nothing yet
  CHECK(Case().computes(2.1, 0.25).share().counted == Approx(0.1 + 0.25 * 2));
  CHECK(Case().computes(2.1, 0.25).share().unserved == Approx(0.75 * 2));
}

TEST_CASE("a rank computes as long as it uses processor time for a part of what counts") {
  CHECK_FALSE(Case().at_rest(2).share().computes);
  CHECK(Case().computes(2, 0.02).share().computes);  // all that it gets
  CHECK(Case().computes(2.1, 0.02).share().used == Approx(0.04));
  CHECK(Case().computes(1).at_rest(0.1).share().computes);
  CHECK_FALSE(Case().computes(1).at_rest(1).share().computes);
}

TEST_CASE("a thread that waits for other ranks need not run, only look") {
  CHECK(Case().looks(2, true).share().counted == Approx(2));
  CHECK_FALSE(Case().looks(2, true).share().computes);
  CHECK(Case().looks(2, false).share().counted == Approx(0.1));
  Case uncounted;  // a kernel that does not count turns
  uncounted.threads[0].turns = 0;
  CHECK(uncounted.looks(2, false).share().counted == Approx(2));
}

TEST_CASE("the kernel's lines about a thread are read whatever its name") {
  const ThreadStat coarse = thread_stat(stat_line('R', 0, 0), "", 100),
                   exact = thread_stat(stat_line('S', 5, 3), "7000000 3000000 9", 100);
  CHECK(coarse.name == "a) b (c");
  CHECK(coarse.times.state == 'R');
  CHECK(coarse.times.used == 1.5);
  CHECK(coarse.times.turns == 0);
  CHECK(exact.nice == 5);
  CHECK(exact.policy == 3);
  CHECK(exact.times.used == Approx(0.007));
  CHECK(exact.times.unserved == Approx(0.003));
  CHECK(exact.times.turns == 9);
  CHECK(thread_stat(stat_line('S', 0, 0), "0 0 0", 100).times.used == 1.5);  // the kernel keeps no such counts
  CHECK(thread_stat("", "", 100).name.empty());
}

TEST_CASE("the threads of this process are found with the processor time that they use") {
  const auto mine = [] {
    for (const ThreadTimes& t : threads_of(getpid()))
      if (t.thread == gettid()) return t;
    return ThreadTimes{};
  };
  const double before = mine().used;
  for (const auto begin = Clock::now(); seconds_since(begin) < 0.3;) {
  }
  CHECK(mine().state == 'R');
  CHECK(mine().used > before);
  CHECK(threads_of(-1).empty());
  bool found = false;  // its patience may end before it comes to this process, on a machine that gives it no core
  for (int i = 0; i < 50 && !found; ++i) found = process_uses().contains(getpid());
  CHECK(found);
}

TEST_CASE("the busiest processes outside the job are named, with what they use of a core") {
  const std::map<int32_t, ProcessUse> before{{1, {"init", 5}}, {2, {"loop", 10}}, {3, {"ours", 10}}, {4, {"cc1plus", 1}}},
      after{{1, {"init", 5.01}}, {2, {"loop", 11.9}}, {3, {"ours", 12}}, {4, {"cc1plus", 2}}, {5, {"new", 0.5}}, {6, {"ld", 0.4}}};
  CHECK(busiest(before, after, 2, {3}) ==
        "busiest outside this job: loop (process 2) 95 %, cc1plus (process 4) 50 %, new (process 5) 25 %");
  CHECK(busiest(before, before, 2, {}) == "no other process that is visible here uses much processor time");
}

}  // namespace trireme
