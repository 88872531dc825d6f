// Storage: the file system that all ranks share, and how long saves and restores will take on it.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "train/step/plan.h"

namespace trireme {

struct Storage {
  double write = 0, read = 0;  // bytes a second, of all ranks together
  double calls = 0;            // opens, renames and the like a second; likewise
};

// Parses "100GB,200GB,50000". ConfigError.
Storage parse_storage(const std::string& words);

struct StorageTimes {
  int64_t start_calls = 0, save_calls = 0, restore_calls = 0;
  int64_t program_calls = 0;  // of a start, if programs and libraries are on the storage as well
  double start = 0, start_with_programs = 0, save = 0,
         restore = 0;  // seconds; a restore comes after the start, on the mesh that saved
};
// Assumes that transfers and calls do not overlap, and that the disks are the limit.
StorageTimes storage_times(const RunConfig& config, const CheckpointSize& checkpoint, int64_t ranks, const Storage& storage);

// Lines under a plan's table, and what would not work.
std::string storage_lines(const RunConfig& config, const StorageTimes& times);
Json storage_json(const StorageTimes& times);

}  // namespace trireme
