// GpuWatch: warnings about GPUs that ail, each once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/telemetry/energy_record.h"

namespace trireme {

// An event of metrics.jsonl, and the line that explains it.
struct GpuNews {
  std::string event, line;
};

class GpuWatch {
 public:
  // Xid errors ("xid_79"), memory errors that were not corrected ("gpu_memory"), and clocks lowered by heat or hardware
  // ("gpu_throttled"), as far as they are new.
  std::vector<GpuNews> look(const EnergyRecord& record);

 private:
  struct Known {
    std::map<int64_t, int64_t> xids{};
    double uncorrected = 0;  // before the first reading: what the GPU had brought along
    uint64_t throttled = 0;  // grave reasons that were reported
    bool seen = false;
  };
  std::map<int64_t, Known> known_;  // by rank
};

}  // namespace trireme
