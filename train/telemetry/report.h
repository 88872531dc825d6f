// runs/NAME/report.html: the run as one page that needs nothing else. Curves, figures, the config; light or dark as the reader's
// system.
//
// Report keeps bounded curves and a thread that rewrites the page while the run continues; the run never waits for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "train/telemetry/downsampled_curve.h"
#include "train/telemetry/metrics.h"

namespace trireme {

enum class RunStatus { running, finished, stopped };

// A table of the report under a heading. A row of one cell takes the whole width.
struct ReportSection {
  std::string title;
  std::vector<std::vector<std::string>> rows;
};

struct ReportData {
  std::string title, config, updated;  // config: the YAML text; updated: a UTC time
  std::vector<std::pair<std::string, std::string>> facts;
  RunStatus status = RunStatus::running;
  int64_t total_steps = 0, step = 0, tokens = 0;
  double elapsed = 0, eta = 0;            // seconds
  double mfu = 0, tokens_per_second = 0;  // of the last step
  EvalRecord best;                        // step 0: none
  DownsampledCurve loss, val_loss, bits_per_byte, lr, speed, grad_norm;
  struct Shares {  // of questions that are answered rightly
    DownsampledCurve accuracy, normalised;
  };
  std::map<std::string, Shares> choices;  // by file
  // Of a report that is handed on; empty in the page that a run keeps.
  DownsampledCurve mfu_curve;
  std::vector<PartTime> parts;  // sums of all steps
  std::vector<ReportSection> sections;
  bool handed_on = false;  // the config is open, and the page does not load itself again

  void add(const StepRecord& record);
  void add(const EvalRecord& record);
  void add(const ChoicesRecord& record);
};

// The page. Pure.
std::string render_report(const ReportData& data);

class Report {
 public:
  // Writes directory/report.html now, every `period` while something is new, and at the end.
  Report(std::string directory, ReportData start, std::chrono::milliseconds period = std::chrono::seconds(10));
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void facts(std::vector<std::pair<std::string, std::string>> rows);
  void add(const StepRecord& record, const StepRecord& usual, double eta);  // usual: its speed is shown
  void add(const EvalRecord& record);
  void add(const ChoicesRecord& record);
  void finish();  // the last page: the run has finished if its last step is done, and stopped otherwise

  const ReportData& data() const { return data_; }  // for the thread that adds
  std::string path() const { return directory_ + "/report.html"; }

 private:
  void refresh(std::stop_token stop);
  void write();

  const std::string directory_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;  // of data_ and changed_
  ReportData data_;
  bool changed_ = false;
  bool refused_ = false;  // by the disk, and reported; the writer's own
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace trireme
