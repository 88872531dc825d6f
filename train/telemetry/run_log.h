// RunLog: the log of a run's steps, evaluations and saves, in its directory and on the terminal.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/telemetry/config.h"
#include "train/telemetry/energy_ledger.h"
#include "train/telemetry/log.h"
#include "train/telemetry/metrics.h"
#include "train/telemetry/run_metrics.h"
#include "train/telemetry/time_left.h"

namespace trireme {

// The log of one run directory: metrics.jsonl, log.txt, report.html, and the progress line or plain lines on stdout.
// Lines go to log.txt, and to stdout unless it is a terminal, at the first step, at every log_every-th and at the last. Speed, MFU
// and the time left that people see are those of a usual recent step (see TimeLeft); metrics.jsonl has each step's own.
// A full disk never stops the run: stderr says so once, and logging continues when there is room.
class RunLog {
 public:
  // The directory exists. DataError if it cannot be written.
  RunLog(const std::string& directory, const std::string& title, const RunSchedule& schedule, const RecordStart& start,
         int64_t log_every);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Sends the records that follow to the readers of `config` as well. A reader that cannot be opened causes a warning.
  void also_to(const ReportConfig& config, const RunFacts& facts);

  // Accounts for energy and cost from here on.
  void account(EnergyOrders orders);
  // The newest readings of all ranks: a record of them, events and warnings. Nothing before the first step of this process.
  void energy(const std::vector<MachineReading>& ranks);

  // Rows of the report's table: {"parameters", "6.1M"}, {"device", "..."}, ... The report also shows directory/config.yaml.
  void facts(std::vector<std::pair<std::string, std::string>> rows);

  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void choices(const ChoicesRecord& record, std::string_view words);  // words: the result for people
  void event(const EventRecord& record, std::string_view line);       // line: a note that explains it, or ""
  void busy_ranks(const BusyRecord& record);
  void note(std::string_view line);      // to stdout, and with the time to log.txt
  void saved(const SaveRecord& record);  // after a checkpoint is committed
  void sync();                           // puts the log on disk; from any thread
  ChainedDigest recorded();              // metrics.jsonl, as far as it is written
  // Ends the other readers, and says where the time went: for a run that ends, also before its last step.
  void last_words();
  void finish();  // the last call of a run that ends in good order: prints the outcome

  // Names the work that the steps wait for, shown in place of the speed: "evaluating" 264 of 5047 sequences; only an
  // evaluation has a total. Without a terminal, a plain line every ten seconds at most.
  void busy(std::string_view what, int64_t done = 0, int64_t total = 0);
  void idle();

  // Whether the log has this part of the evaluation after `step`: "" is the validation text, else the name of a file of questions.
  bool evaluated(int64_t step, const std::string& part) const;

 private:
  void note_warnings();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
