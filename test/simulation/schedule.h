// Schedule: one run of the simulation. A seed draws a job, its faults and every choice on the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::simulation {

// A fault of the protocol itself, planted between the product and the system.
enum class Planted {
  none,
  directories_unsynced,  // syncs of directories do nothing
  files_unsynced,        // syncs of ranks' files do nothing
  lock_unchecked,        // a lost lock looks as if it were held
  lock_shared,           // two processes get the lock
  deletes_early,         // old checkpoints are deleted when a save begins
};

struct Options {
  uint64_t seed = 1;
  Planted planted = Planted::none;
  bool traced = false;
};

struct Result {
  std::string failure;  // "": every promise held
  std::vector<std::string> trace;
  int64_t calls = 0, commits = 0, restores = 0, faults = 0;
};

Result run_schedule(const Options& options);

// The trace of a failed seed and the command that repeats it.
std::string explain(const Options& options);

}  // namespace trireme::simulation
