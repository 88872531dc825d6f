// A run that is started again when it fails, until it is finished: `trireme supervise -- mpirun -n 8 trireme train config.yaml`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace trireme {

struct SuperviseOptions {
  std::vector<std::string> command;  // a launcher and what it starts, or `trireme train` alone
  int64_t max_restarts = 10;         // in a row without a new checkpoint
  bool elastic = false;              // after a rank was lost twice at the same place, with fewer ranks
};

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

// The decision after these attempts, the newest last.
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
