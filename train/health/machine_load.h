// Load of this machine: its load average, and the processes outside the job that use most processor
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/clock.h"

namespace trireme {

struct ProcessUse {
  std::string name;    // without control bytes
  double seconds = 0;  // of processor time since the process began
};

// Processor time of each process of this node that /proc shows. Takes at most about a fifth of a second,
// and leaves out the processes beyond that.
std::map<int32_t, ProcessUse> process_uses();

// Describes the difference of two readings, `seconds` apart: "load average 7.9 on 2 cores; busiest outside
// this job: cc1plus (process 81) 98 %". Processes of `job` are left out, and those that use little.
std::string busiest(const std::map<int32_t, ProcessUse>& before, const std::map<int32_t, ProcessUse>& after, double seconds,
                    const std::set<int32_t>& job);

// Two readings: begin() takes the first, describe() the second.
class MachineLoad {
 public:
  void begin();
  bool begun() const { return !before_.empty(); }
  void forget() { before_.clear(); }
  std::string describe(const std::set<int32_t>& job);

 private:
  std::map<int32_t, ProcessUse> before_;
  Clock::time_point at_;
};

}  // namespace trireme
