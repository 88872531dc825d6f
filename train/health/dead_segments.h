// Sweeps the shared-memory files that Open MPI's killed jobs leave in /dev/shm, where they take memory from checkpoints in memory.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct SweptSegments {
  int64_t files = 0, bytes = 0;  // bytes: memory that is free again
};

// Removes this user's vader_segment.* and sm_segment.* that no process, in whatever container, has open or mapped: a lease of the
// kernel says so. Never follows links. What cannot be judged stays.
SweptSegments sweep_dead_segments(const std::string& directory = "/dev/shm");

}  // namespace trireme
