// Attempt: how one start of a supervised run ended, and the decision that follows. Uses no clock, file or process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// RUN/exit.json at one moment.
struct ExitRecord {
  std::pair<uint64_t, int64_t> identity{};  // differs after each write; {} if there is no file
  int64_t code = -1, rank = -1, step = -1;
  std::string cause{}, host{}, message{};
};

// Facts of a run directory at one moment.
struct RunFiles {
  int64_t newest_checkpoint = -1;  // step, in either tier
  ExitRecord exit{};
  std::pair<uint64_t, int64_t> metrics{};  // identity of metrics.jsonl, as that of exit.json
  int64_t last_step = -1;                  // in metrics.jsonl
};

// How a running attempt ended, as seen from outside.
struct AttemptEnd {
  int code = 0;         // of the process; 128 + n when signal n ended it
  std::string heard{};  // the end of what the launcher and its ranks wrote to stderr
  double frozen = 0;    // seconds; above 0 if supervise ended it for that
  bool asked = false;   // to stop, by a signal to its launcher
};

struct Attempt {
  int64_t number = 1, ranks = 1;
  std::string started;  // UTC
  double seconds = 0;
  int code = 0;  // of the process, 128 + n when signal n ended it; 75 or 76 if exit.json says so; 71 if it was frozen
  std::string cause, host, message;  // of exit.json if this attempt wrote it, else of the launcher's words
  int64_t rank = -1;
  int64_t step = -1;                                    // the furthest that this attempt finished; -1: it finished none
  int64_t first_checkpoint = -1, last_checkpoint = -1;  // the newest step before and after
  bool asked = false;                                   // its launcher was, to stop
  bool made_progress() const { return last_checkpoint > first_checkpoint; }
};
std::string json_line(const Attempt& attempt);
std::string describe(const Attempt& attempt);

// Completes an attempt by its end and by what its run directory held before and after it.
Attempt judge_attempt(Attempt attempt, const AttemptEnd& end, const RunFiles& before, const RunFiles& after);

// The exit code after a request to stop: 75 if nothing is lost, otherwise the attempt's own.
int code_when_stopped(const Attempt& last);

// The decision after these attempts, the newest last.
struct Next {
  enum class Kind { done, stopped, give_up, restart } kind;
  std::string why;
  double delay = 0;    // seconds before a restart
  bool fewer = false;  // ranks, if that is allowed: the last two attempts have lost the same one, without a new checkpoint
};
Next next_after(const std::vector<Attempt>& attempts, int64_t max_restarts);

}  // namespace trireme
