// A run that is started again when it fails, until it is finished: `trireme supervise -- mpirun -n 8 trireme train config.yaml`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "train/config/config.h"
#include "train/run/attempt.h"
#include "train/run/launched_training.h"
#include "train/run/supervise_io.h"

namespace trireme {

struct SuperviseOptions {
  std::vector<std::string> command;  // a launcher and what it starts, or `trireme train` alone
  int64_t max_restarts = 10;         // in a row without a new checkpoint
  bool elastic = false;              // after the same rank was lost twice, with fewer ranks
  int64_t frozen_after = 60;         // seconds without any processor time of any rank; 0: never
  std::string fetch{};               // a command that fetches the run's checkpoints if its disk has none
  bool exclude_bad = false;          // continue without hosts that failed
  std::string hostfile{};            // with more hosts than needed; "": the launcher's own, or Slurm's allocation
};

// Runs attempts until one is done, was asked to stop, or no further one would help; each adds a line to RUN/attempts.jsonl. Returns
// the last one's exit code. Signals are passed on, and end it too. A child dies with this process.
ExitCode run_supervise(const SuperviseOptions& options);

// The same over a replaceable system, without handlers of signals.
ExitCode supervise(const SuperviseIo& io, const SuperviseOptions& options, const LaunchedTraining& training,
                   const RunConfig& config);

}  // namespace trireme
