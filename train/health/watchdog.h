// Watchdog: a thread that detects hangs. If no rank of the node makes progress, it reports the rank that
// the others wait for, and all ranks end.
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
    double patience = 5;               // seconds without progress that count as a hang; 0 disables
    double at_start = 120;             // multiple of patience, before the first few steps and after the last
    const HangBoard* board = nullptr;  // for runs on several nodes; nullptr: one node
    // Multiple of patience while a rank reads, writes or evaluates, since shared disks may be slow.
    // warn() is called once before.
    double for_disks = 12;
    std::function<void(const std::string&)> warn;
    // Called on one rank, just before it ends: the verdict, and the culprit's stack, "" if unknown.
    std::function<void(const Verdict&, const std::string& stack)> report;
  };
  // Either all ranks have a watchdog or none. After one of them has reported, each ends its process with
  // ExitCode::hang. The journal must outlive this.
  Watchdog(Journal& journal, int64_t rank, Orders orders);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Records a step's duration: a hang lasts at least three times the 99th percentile of recent steps.
  void took(double seconds);
  void last_step_done();
  void stop();  // ends the thread

 private:
  void watch();
  bool decide(double silent, double limit, bool& warned);
  bool enough_told(const std::vector<RankReport>& ranks);
  std::vector<RankReport> all_told() const;
  bool speaks_for_all(int64_t culprit) const;
  double limit();
  bool sleep();  // returns false if the thread must end
  void judge_all();

  Journal& journal_;
  const int64_t rank_;
  const Orders orders_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false, regular_ = false;
  std::vector<double> steps_;  // seconds: ring of recent durations
  size_t next_ = 0;
  bool told_ = false;                           // this node's report is on the board
  std::vector<std::vector<RankReport>> nodes_;  // reports by node
  std::thread thread_;                          // last, since it uses all other members
};

}  // namespace trireme
