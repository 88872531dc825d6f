// Processor time of the threads of a process, read from /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct ThreadTimes {
  int32_t thread = 0;       // the system's id
  char state = 'S';         // from the system: 'R' running or ready to run, 'S' and 'D' waiting
  double used = 0;          // seconds of processor time since the thread began
  double unserved = 0;      // seconds in which it was ready to run but had no core, up to when it last ran; 0 if unknown
  int64_t turns = 0;        // times it was given a core; 0 if unknown
  bool background = false;  // its work may wait: it watches other threads, or has a lower priority than the first thread
};

// All threads of a process of this node; none if it is gone. The kernel need not count turns.
std::vector<ThreadTimes> threads_of(int32_t process);

double unserved_here();  // of the calling thread; 0 if unknown

// Reads a line of /proc/PID/stat and one of /proc/PID/schedstat, "" if the kernel has none.
struct ThreadStat {
  std::string name;
  ThreadTimes times;
  int64_t nice = 0, policy = 0;
};
ThreadStat thread_stat(const std::string& stat, const std::string& schedstat, double ticks_per_second);

}  // namespace trireme
