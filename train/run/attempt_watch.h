// AttemptWatch: decides which signals a running attempt is sent. Uses no clock, file or process: it is given what was seen.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"

namespace trireme {

// The processes of a running attempt on this machine.
struct RunProcesses {
  bool any = false, alive = false;  // children of the launcher; those that are not zombies
};

struct AttemptSeen {
  Clock::time_point now;
  int stop_signal = 0;                      // that this process was sent last; 0: none
  std::optional<RunProcesses> processes{};  // if looked at this time
};

struct AttemptOrder {
  int signal = 0;     // to send to the launcher; 0: none
  std::string say{};  // to the user before
};

class AttemptWatch {
 public:
  explicit AttemptWatch(bool by_mpirun) : by_mpirun_(by_mpirun) {}
  bool wants_processes(Clock::time_point now);  // whether the next sight is to hold them
  AttemptOrder after(const AttemptSeen& seen);

 private:
  bool left_alone(const AttemptSeen& seen);

  bool by_mpirun_, started_ = false;
  int passed_ = 0;  // the stop signal that was passed on last
  Clock::time_point looked_{}, since_{};
};

}  // namespace trireme
