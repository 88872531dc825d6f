// AttemptWatch: decides which signals a running attempt is sent. Uses no clock, file or process: it is given what was seen.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace trireme {

// The processes of a running attempt on this machine.
struct RunProcesses {
  bool any = false, alive = false;  // children of the launcher; those that are not zombies
  std::vector<pid_t> ranks{};       // all that run the program
  bool traced = false;              // a debugger holds one of them
  bool told_to_end = false;         // the launcher was, by another than this process
  uint64_t scheduled = 0;           // how often their threads were given a processor: it grows unless all are frozen
};

struct AttemptSeen {
  Clock::time_point now;
  int stop_signal = 0;                      // that this process was sent last; 0: none
  std::optional<RunProcesses> processes{};  // if looked at this time
};

struct AttemptOrder {
  int signal = 0;              // to send; 0: none
  std::vector<pid_t> ranks{};  // to send it to; empty: to the launcher
  std::string say{};           // to the user before
};

class AttemptWatch {
 public:
  // `frozen_after`: seconds for which no rank may be given a processor; 0: for ever.
  AttemptWatch(bool by_mpirun, double frozen_after) : by_mpirun_(by_mpirun), frozen_after_(frozen_after) {}
  bool wants_processes(Clock::time_point now);  // whether the next sight is to hold them
  AttemptOrder after(const AttemptSeen& seen);
  bool asked() const { return passed_ != 0; }                          // to stop: this process, or the launcher
  double frozen() const { return ended_frozen_ ? frozen_after_ : 0; }  // seconds, if that ended the attempt

 private:
  void ask(int signal, Clock::time_point now);
  bool left_alone(const AttemptSeen& seen);
  bool starts_nothing(const AttemptSeen& seen) const;
  bool are_frozen(const AttemptSeen& seen);

  bool by_mpirun_, started_ = false;
  const double frozen_after_;
  int passed_ = 0;  // the stop signal that was passed on last
  Clock::time_point asked_at_{}, passed_at_{}, looked_{}, since_{};
  bool ended_frozen_ = false;
  uint64_t scheduled_ = 0;
  std::vector<pid_t> ranks_;
  Clock::time_point ran_{}, seen_{};  // when a rank was last given a processor; the look before this one
};

}  // namespace trireme
