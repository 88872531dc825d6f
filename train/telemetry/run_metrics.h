// RunMetrics: the newest numbers of a run, in Prometheus's text format.
//
// Format 0.0.4: "# HELP", "# TYPE" and the samples of each metric. All names begin with trireme_, and all samples have the label
// run. Times are seconds since 1970.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "train/telemetry/record_readers.h"
#include "train/telemetry/run_starts.h"

namespace trireme {

// The constant facts of a process that trains.
struct RunFacts {
  std::string run;              // train.name
  std::string version, commit;  // of this program
  int64_t total_steps = 0, save_every = 0, ranks = 1;
  int64_t restored = 0;  // step of the checkpoint from which this start continues; 0: none
  int64_t on_disk = 0;   // step of the newest checkpoint on disk at the start
  RunStarts starts{};
  double patience = 0;  // train.hang_after, in seconds; 0: none
};

// The newest records of a run, and sums over the steps of this process.
struct RunNumbers {
  static constexpr std::array<double, 14> kSeconds{0.01, 0.03, 0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300};
  StepRecord step{};
  EvalRecord eval{};
  BusyRecord busy{};
  SaveRecord save{};  // the last one to disk
  std::optional<EnergyRecord> energy{};
  std::map<std::string, ChoicesRecord> choices{};
  std::map<std::string, int64_t> skipped{{"not_finite", 0}, {"spike", 0}};
  int64_t stragglers = 0;
  std::map<std::string, double> part_seconds{};
  double step_time = 0, save_time = 0;
  double step_seconds = 0, data_seconds = 0, save_stall = 0;
  int64_t steps = 0, saves = 0;
  double tokens = 0;                                    // of the steps of this process
  std::array<int64_t, kSeconds.size()> steps_within{};  // steps that took at most so many seconds
  std::array<double, 32> recent{};                      // seconds of the last steps

  void add(const StepRecord& record);
  void add(const EvalRecord& record) { eval = record; }
  void add(const ChoicesRecord& record) { choices[record.name] = record; }
  void add(const EventRecord& record);
  void add(const BusyRecord& record) { busy = record; }
  void add(const SaveRecord& record);
  void add(const EnergyRecord& record) { energy = record; }
};

// Thread-safe.
class RunMetrics {
 public:
  // `before`: seconds of the steps before a resume.
  explicit RunMetrics(RunFacts facts, double before = 0);

  void add(const RunRecord& record);
  void busy(bool busy);      // the run does something else than steps, such as an evaluation or a save
  std::string text() const;  // the format above
  // Seconds since the last record, and how many are usual at most: a minute, train.hang_after, or three times the slowest of the
  // last steps. Before the first step, and while the run is busy, any time is usual.
  struct Pulse {
    double silent, usual;
    bool healthy() const { return silent <= usual; }
  };
  Pulse pulse() const;

 private:
  const RunFacts facts_;
  const double before_;
  mutable std::mutex mutex_;               // of what follows
  Clock::time_point last_ = Clock::now();  // record, or end of what the run was busy with
  bool busy_ = false;
  RunNumbers numbers_;
};

// Replaces a file with the text of RunMetrics, once a second at most and at the end.
class RunMetricsFile : public RecordReader {
 public:
  RunMetricsFile(const RunFacts& facts, double before, std::string path) : metrics_(facts, before), path_(std::move(path)) {}

  std::string name() const override { return "report.prometheus_file"; }
  void read(const RunRecord& record) override { metrics_.add(record), any_ = true; }
  void caught_up() override;
  void finish() override;

 private:
  void write();
  RunMetrics metrics_;
  const std::string path_;
  bool any_ = false;
  Clock::time_point written_{};
};

}  // namespace trireme
