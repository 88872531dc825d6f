// The loop of a run: step, log, evaluate, save, until the last step or a signal; and what becomes of a bad step.
#pragma once

#include <optional>

#include "checkpoint/checkpoints.h"
#include "data/loader/corpus.h"
#include "data/loader/loader.h"
#include "train/eval/choices.h"
#include "train/health/watchdog.h"
#include "train/run/peak_rate.h"
#include "train/run/resume.h"
#include "train/run/save_scheduler.h"
#include "train/run/step_statistics.h"
#include "train/telemetry/run_log.h"

namespace trireme {

// Everything that the loop talks to, next to the TrainState itself.
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
  std::optional<RunLog>& log;  // rank 0's
  double flops;                // of the model, a step, on average over the ranks
  PeakRate& peak;

  void note(const std::string& line) const {
    if (log) log->note(line);
  }
};

// Goes on behind `step` finished steps, which it counts. ExitCode::done or ::stopped. NumericsError when a bad step is to end the
// run, or ten that are not finite follow each other.
ExitCode loop(Session& session, int64_t& step);

}  // namespace trireme
