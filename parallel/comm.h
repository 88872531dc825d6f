// Comm: the ranks along one axis of the mesh, among which collectives run. An imagined Comm has a size and a rank but no one at the
// other end: its collectives run on Place::none only, where they are counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/journal.h"

namespace trireme {

class GpuGroup;

// Messages between two ranks along one channel arrive in the order in which they were sent; those of different channels do not
// wait for each other.
enum class Channel { forward, backward, tied };

class Comm {
 public:
  Comm() = default;  // a group of one
  Comm(std::string axis, int64_t rank, int64_t size) : axis_(std::move(axis)), rank_(rank), size_(size) {}
  // Takes part of a launched World: ranks of one color form a group, in the order of their keys. Every rank of the world calls it.
  Comm(std::string axis, int64_t color, int64_t key, bool launched);
  ~Comm();
  Comm(Comm&& other) noexcept { *this = std::move(other); }
  Comm& operator=(Comm&& other) noexcept;

  const std::string& axis() const { return axis_; }
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  uint64_t group() const { return group_; }  // MPI's handle; 0: none
  // Its ranks in the world.
  const GroupRanks& ranks() const { return ranks_; }
  // Who waits along this axis is written down from here on. The journal outlives this.
  void keep(Journal& journal) { journal_ = &journal; }
  JournalSpan span(const char* what, int64_t bytes, int64_t peer = -1) const {
    const int64_t other = peer < 0 ? -1 : ranks_.member(peer);
    return {journal_, {.what = what, .along = axis_.c_str(), .group = ranks_, .bytes = bytes, .peer = other}};
  }
  // From here on collectives run on Place::cuda, too, and with `ring` messages from each rank to its neighbours (forward to the
  // next, backward to the one before) and between both ends (tied). All ranks of the group call it. Sums there are NCCL's own;
  // `ordered`: in the order of the tree, as on the CPU.
  void connect_gpus(bool ring, bool ordered);
  GpuGroup& gpus() const;  // Error before connect_gpus()
  bool ordered() const { return ordered_; }
  // The group in nodes of so many neighbours each: sums and gathers then go through each node once. 1: not in nodes.
  int64_t locals() const { return locals_; }
  // `locals` divides the group.
  void in_nodes(int64_t locals) { locals_ = locals < size_ ? locals : 1; }

 private:
  std::string axis_ = "one";
  int64_t rank_ = 0, size_ = 1, locals_ = 1;
  uint64_t group_ = 0;
  GroupRanks ranks_;
  Journal* journal_ = nullptr;
  bool ordered_ = false;
  struct Closer {
    void operator()(GpuGroup* group) const;
  };
  std::unique_ptr<GpuGroup, Closer> gpus_;
};

inline const Comm kAlone;  // one rank

}  // namespace trireme
