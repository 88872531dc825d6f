// CounterReader: counters of this process and its machine that explain why a rank is slow.
#pragma once

#include <string>
#include <utility>

#include "train/health/rank_work.h"

namespace trireme {

// Reads /proc and /sys. What a machine does not show stays 0.
class CounterReader {
 public:
  explicit CounterReader(std::string root = "") : root_(std::move(root)) { take(); }

  MachineCounters take();  // since the last call

 private:
  struct Seen {
    double disk_faults = 0, stolen = 0, ticks = 0, throttles = 0;
  };
  Seen look() const;

  std::string root_;  // of the file system
  Seen seen_{};
};

}  // namespace trireme
