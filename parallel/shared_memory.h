// SharedMemory: memory of the ranks of a group that those on one machine read in place. Sums and
// gathers on Place::cpu take addends from there, without messages that would copy them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/memory.h"
#include "parallel/comm.h"

namespace trireme {

// True if another rank of the group is on this machine. All ranks of the group call it.
bool has_neighbours(const Comm& comm);

class SharedMemory {
 public:
  // Opens an arena of shared memory to the group's ranks on this machine, for the object's lifetime.
  // All ranks of the group call it, with arenas of one size. If one of them cannot, none shares any.
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

// Memory of ranks [first, first + count) of the group where this one has `here`. Empty unless all of
// them share it with this one.
std::vector<const std::byte*> shared_by(const Comm& comm, const void* here, int64_t first, int64_t count);

}  // namespace trireme
