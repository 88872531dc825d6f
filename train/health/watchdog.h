// Watchdog: a thread beside those that train. When no rank of the node gets on any more, it names the one that the others wait for,
// and all end: nobody waits for hours, or asks each rank where it is.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/journal.h"
#include "parallel/verdict.h"
#include "train/health/hang_board.h"

namespace trireme {

class Watchdog {
 public:
  struct Orders {
    double patience = 5;               // seconds in which nobody gets on; 0: never mind
    double at_start = 120;             // times the patience, until there have been some steps, and after the last
    const HangBoard* board = nullptr;  // of several nodes, whose ranks cannot be read otherwise
    // Times the patience, when one does not "train" but reads, writes or evaluates: disks of many users take their time. It is told
    // before.
    double for_disks = 12;
    std::function<void(const std::string&)> warn;
    // The last act of the rank that speaks: the verdict, and the culprit's stack if that could tell.
    std::function<void(const Verdict&, const std::string& stack)> report;
  };
  // All ranks have one, or none: each ends its process, with ExitCode::hang, after one of them has told. The journal
  // outlives this.
  Watchdog(Journal& journal, int64_t rank, Orders orders);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A step took so long: a hang is no shorter than three of the slowest of a hundred.
  void took(double seconds);
  void last_step_done();
  void stop();  // nothing is watched any more

 private:
  void watch();
  bool decide(double silent, double limit, bool& warned);
  bool enough_told(const std::vector<RankReport>& ranks);
  std::vector<RankReport> all_told() const;
  bool speaks_for_all(int64_t culprit) const;
  double limit();
  bool sleep();  // false: it is to end
  void judge_all();

  Journal& journal_;
  const int64_t rank_;
  const Orders orders_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false, regular_ = false;
  std::vector<double> steps_;  // the last, in a ring
  size_t next_ = 0;
  bool told_ = false;                           // to other nodes
  std::vector<std::vector<RankReport>> nodes_;  // what they have told
  std::thread thread_;                          // last: it starts when all else stands
};

}  // namespace trireme
