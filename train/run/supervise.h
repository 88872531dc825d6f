// A run that is started again when it fails, until it is finished: `trireme supervise -- mpirun -n 8 trireme train config.yaml`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace trireme {

struct SuperviseOptions {
  std::vector<std::string> command;  // a launcher and what it starts, or `trireme train` alone
  int64_t max_restarts = 10;         // in a row without a new checkpoint
  bool elastic = false;              // after a rank was lost twice at the same place, with fewer ranks
};

// A command that starts `trireme train`, taken apart.
struct LaunchedTraining {
  std::vector<std::string> words;
  std::string config;            // what `train` is given
  std::vector<std::string> set;  // its --set
  int64_t ranks = 1;
  std::optional<size_t> ranks_at;  // the word that holds the number, or ends with it after '='
  bool by_mpirun = false;

  // The same with so many ranks, and settings ("--set parallel.tp=2 --set ...") that override those before.
  LaunchedTraining with(int64_t other_ranks, const std::string& settings) const;
};
// ConfigError when the command starts no `train`.
LaunchedTraining take_apart(const std::vector<std::string>& command);

// How one attempt ended.
struct Attempt {
  int64_t number = 1, ranks = 1;
  std::string started;  // UTC
  double seconds = 0;
  int code = 0;                      // of the process; 128 + n when signal n ended it
  std::string cause, host, message;  // of exit.json, if this attempt wrote it
  int64_t rank = -1, step = -1;
  int64_t first_checkpoint = -1, last_checkpoint = -1;  // the newest step before and after
  bool made_progress() const { return last_checkpoint > first_checkpoint; }
};
std::string json_line(const Attempt& attempt);

// What to do after these attempts, the newest last.
struct Next {
  enum class Kind { done, stopped, give_up, restart } kind;
  std::string why;
  double delay = 0;    // seconds before a restart
  bool fewer = false;  // ranks, if that is allowed
};
Next next_after(const std::vector<Attempt>& attempts, int64_t max_restarts);

// Runs attempts until one is done, was asked to stop, or no further one would help; each adds a line to RUN/attempts.jsonl. Returns
// the last one's exit code. Signals are passed on, and end it too. A child dies with this process.
ExitCode run_supervise(const SuperviseOptions& options);

}  // namespace trireme
