// SharedMemory: memory of the ranks of a group that those on one machine read in place. Sums and
// gathers on Place::cpu take addends from there, without messages that would copy them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/memory.h"
#include "parallel/comm.h"

namespace trireme {

// True if the group's ranks, or those of each of its nodes, are on one machine: then they gain by
// SharedMemory. All ranks of the group call it.
bool lie_together(const Comm& comm);

class SharedMemory {
 public:
  // Opens an arena of shared memory to the group's ranks on this machine, for the object's lifetime.
  // All ranks of the group call it, with arenas of one size. None shares any unless they lie together
  // and the system lets all of them.
  // The group must not move.
  SharedMemory(const Comm& comm, const Arena& arena);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  bool holds(const void* here) const { return here >= memory_ && here < memory_ + bytes_; }
  // Memory of rank r of the group where this one has `here`; nullptr if r is on another machine.
  const std::byte* of(int64_t r, const void* here) const {
    const std::byte* const theirs = views_[static_cast<size_t>(r)];
    return theirs == nullptr ? nullptr : theirs + (static_cast<const std::byte*>(here) - memory_);
  }

 private:
  void close();

  const Comm& comm_;
  const std::byte* memory_;
  int64_t bytes_;
  std::vector<const std::byte*> views_;  // by rank of the group
};

// The first of the ranks of this one's node, and their number. A group that is not divided into nodes
// counts as one.
std::pair<int64_t, int64_t> near_ranks(const Comm& comm);

// Memory of these ranks where this one has so many bytes at `here`. Empty unless all of them share it,
// and for few bytes, which arrive before the ranks would have met.
std::vector<const std::byte*> shared_by_near(const Comm& comm, const void* here, int64_t bytes);
inline constexpr int64_t kFewestShared = 16 << 10;

}  // namespace trireme
