// Session: everything that the loop of a run works with, next to the TrainState itself.
#pragma once

#include <optional>

#include "checkpoint/checkpoints.h"
#include "data/loader/corpus.h"
#include "data/loader/loader.h"
#include "train/eval/choices.h"
#include "train/health/last_words.h"
#include "train/health/watchdog.h"
#include "train/run/peak_rate.h"
#include "train/run/resume.h"
#include "train/run/run_meter.h"
#include "train/run/save_scheduler.h"
#include "train/run/scrubber.h"
#include "train/run/step_statistics.h"
#include "train/run/stop_notice.h"
#include "train/telemetry/run_log.h"

namespace trireme {

// FLOPs of a step on a rank; see Plan.
struct StepFlops {
  double model, full, executed;
};

struct Session {
  const RunConfig& config;
  const ResumeChoice& resume;
  TrainState& run;
  Loader& loader;
  const std::optional<Corpus>& validation;
  const std::vector<ChoiceTask>& choices;
  Checkpoints& checkpoints;
  SaveScheduler& saves;
  StepStatistics& history;
  Journal& journal;
  Watchdog& watchdog;
  StopNotice& notice;
  const Scrubber& scrubber;
  RunMeter& meter;
  std::optional<RunLog>& log;  // rank 0's
  StepFlops flops;             // of a step, on average over the ranks
  PeakRate& peak;
  bool shares_cores;    // with other ranks of the run
  bool saving = false;  // a rank works on a save beside the steps

  void note(const std::string& line) const {
    if (log) log->note(line);
  }
};

// The work of this rank's thread, as other ranks see it, while the scope lasts.
class Doing {
 public:
  Doing(Journal& journal, const char* what) : journal_(journal) { now(what); }
  ~Doing() { now("training"); }
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  void now(const char* what) { journal_.doing(what), note_doing(what); }
  Journal& journal_;
};

}  // namespace trireme
