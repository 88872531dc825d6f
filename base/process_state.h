// State of a process on this machine, from /proc.
#pragma once

#include <cstdint>

namespace trireme {

struct ProcessState {
  // As in proc(5): 'R' runs, 'S' and 'D' wait, 'T' stopped, 't' traced, 'Z' and 'X' dead; also 'X' if it is gone.
  char letter = 'X';
  int32_t parent = 0;  // 0: none, or the process is gone

  bool dead() const { return letter == 'Z' || letter == 'X'; }
};

ProcessState state_of_process(int32_t process);

}  // namespace trireme
