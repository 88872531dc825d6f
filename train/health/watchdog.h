// Watchdog: a thread that detects hangs. If no rank of the node makes progress, it names the rank that
// the others wait for, and all ranks end. A rank that is only slow, or that no other waits for, causes a
// warning.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "parallel/journal.h"
#include "parallel/verdict.h"
#include "train/health/hang_board.h"
#include "train/health/machine_load.h"
#include "train/health/node_reports.h"
#include "train/health/processor_meter.h"

namespace trireme {

class Watchdog {
 public:
  struct Finding {
    Verdict verdict;
    std::string stack;    // of the verdict's rank, "" if unknown
    std::string machine;  // what else loads it
  };
  enum class Warning { disk, slow, unawaited };  // why the run continues so far
  struct Orders {
    double patience = 5;               // seconds without progress that count as a hang; 0 disables
    double at_start = 120;             // multiple of patience, before the first few steps and after the last
    const HangBoard* board = nullptr;  // for runs on several nodes; nullptr: one node
    // Multiple of patience while a rank reads, writes or evaluates, since shared disks may be slow.
    double for_disks = 12;
    std::function<void(Warning, const Finding&)> warn;  // called at growing intervals
    std::function<void(const Finding&)> report;         // called on one rank, just before it ends
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
  bool steps_are_done();
  // Seconds that a step may take, by those before: the limit of a hang, and `patience` while there are too few.
  double longest_step();
  void stop();  // ends the thread

 private:
  struct Silence {                              // since the node's last progress, in seconds
    double lasted = 0, counted = 0;             // counted: without rounds in which this process was stopped
    double looked = 0;                          // counted, at the last look at the ranks
    double measured = 0, measured_counted = 0;  // lasted and counted, when the ranks' shares were last measured
    bool warned_of_disk = false;
  };
  void watch();
  double counts(double round, double unserved, double limit) const;
  std::optional<Verdict> look(double limit);
  std::optional<Verdict> decide(const std::vector<RankReport>& ranks, double limit);
  void warn(Warning why, const Verdict& verdict);
  Finding finding(const Verdict& verdict);
  bool reports() const;
  double limit();
  double limit_of_steps() const;  // with mutex_ held
  bool sleep();                   // returns false if the thread must end
  void end_culprit(const RankReport& culprit);
  void judge_all(const std::optional<Verdict>& own);

  Journal& journal_;
  const int64_t rank_;
  const Orders orders_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false, regular_ = false, done_ = false;
  std::vector<double> steps_;  // seconds: ring of recent durations
  size_t next_ = 0;
  Silence silence_;
  ProcessorMeter meter_;
  MachineLoad machine_;
  std::optional<Clock::time_point> warned_;  // the last warning
  double until_warning_ = 0;                 // seconds from it to the next
  NodeReports nodes_;
  std::thread thread_;  // last, since it uses all other members
};

}  // namespace trireme
