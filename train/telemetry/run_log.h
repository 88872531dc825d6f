// RunLog: what a run tells of its steps, in its directory and on the terminal.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/telemetry/log.h"
#include "train/telemetry/metrics.h"

namespace trireme {

// The log of one run directory: metrics.jsonl, log.txt, report.html, and the progress line or plain lines on stdout.
// Lines go to log.txt, and to stdout where it is no terminal, at the first step, at every log_every-th and at the last.
// A full disk never stops the run: it is told once on stderr, and logging goes on when there is room.
class RunLog {
 public:
  // The directory exists. resume_step: the step of the checkpoint that was restored, -1 for a fresh run. Error if it cannot be
  // written.
  RunLog(const std::string& directory, const std::string& title, int64_t total_steps, int64_t resume_step, int64_t log_every);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Rows of the report's table: {"parameters", "6.1M"}, {"device", "..."}, ... The report also shows directory/config.yaml.
  void facts(std::vector<std::pair<std::string, std::string>> rows);

  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void choices(const ChoicesRecord& record, std::string_view told);  // `told`: its line for people
  void note(std::string_view line);                                  // to stdout, and with the time to log.txt
  void saved(const SaveRecord& record);                              // after a checkpoint is committed
  void sync();                                                       // what was logged is on disk; from any thread
  void finish();  // the last call of a run that ends in good order: tells the outcome

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
