// Comm: the ranks along one axis of the mesh, among which collectives run. An imagined Comm has a
// size and a rank but no peers: its collectives run on Place::none only, where they are counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/journal.h"

namespace trireme {

class GpuGroup;
class SharedMemory;

// Channel of a message between two ranks. Messages of one channel arrive in order; those of
// different channels do not wait for each other. Where a model's pieces turn (see schedule.h), those of
// the second half go forward to the previous rank, and backward to the next.
enum class Channel { forward, backward, turned_forward, turned_backward, tied };

// Use that a group of GPUs will have, for which its connections are made at the start.
struct GpuUse {
  bool ring = false;       // messages from each rank to its neighbours (forward to the next, backward to the previous)
                           // and between both ends (tied)
  bool turns = false;      // with a ring: messages of the turned channels as well
  bool ordered = false;    // sums in the order of the tree, as on the CPU; otherwise in NCCL's
  bool exchanges = false;  // sums of addends that are sent in another dtype; ordered sums have exchanges, too
};

class Comm {
 public:
  Comm() = default;  // a group of one
  Comm(std::string axis, int64_t rank, int64_t size) : axis_(std::move(axis)), rank_(rank), size_(size) {}
  // Joins a group of a launched World: ranks of one color form a group, ordered by their keys.
  // Every rank of the world calls it.
  Comm(std::string axis, int64_t color, int64_t key, bool launched);
  ~Comm();
  Comm(Comm&& other) noexcept { *this = std::move(other); }
  Comm& operator=(Comm&& other) noexcept;

  const std::string& axis() const { return axis_; }
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  uint64_t group() const { return group_; }  // MPI's handle; 0: none
  // The group's ranks in the world.
  const GroupRanks& ranks() const { return ranks_; }
  // Records waits along this axis from now on. The journal must outlive this.
  void keep(Journal& journal) { journal_ = &journal; }
  JournalSpan span(const char* what, int64_t bytes, int64_t peer = -1) const {
    const int64_t other = peer < 0 ? -1 : ranks_.member(peer);
    return {journal_, {.what = what, .along = axis_.c_str(), .group = ranks_, .bytes = bytes, .peer = other}};
  }
  // Likewise between hosts, whatever the lanes do meanwhile.
  JournalSpan host_span(const char* what, int64_t bytes) const {
    return {journal_, {.what = what, .along = axis_.c_str(), .group = ranks_, .bytes = bytes, .hosts = true}};
  }
  // Records an exchange of this rank with the group, or with `peer` in the given direction.
  void took(double seconds, int64_t bytes, int64_t peer = -1, bool sent = true) const {
    if (journal_ == nullptr || size_ == 1) return;
    const auto here = static_cast<int32_t>(ranks_.member(rank_)), other = static_cast<int32_t>(ranks_.member(peer < 0 ? 0 : peer));
    const auto last = static_cast<int32_t>(ranks_.member(size_ - 1));
    LinkTime link{.from = other, .to = last, .message = peer < 0 ? 0 : 1};
    if (peer >= 0) link.from = sent ? here : other, link.to = sent ? other : here;
    axis_.copy(link.along.data(), link.along.size() - 1);
    link.seconds = static_cast<float>(seconds), link.bytes = static_cast<float>(bytes);
    journal_->links().add(link);
  }
  // Makes the GPU count the collectives that it enters, at this address of its own; nullptr: not.
  void count_on_gpu(std::byte* counter) { gpu_counter_ = counter; }
  std::byte* gpu_counter() const { return gpu_counter_; }
  // Enables collectives on Place::cuda. All ranks of the group call it.
  void connect_gpus(const GpuUse& use);
  GpuGroup& gpus() const;  // Error before connect_gpus()
  bool ordered() const { return ordered_; }
  // Memory that ranks on this machine read in place: see shared_memory.h.
  void share(const SharedMemory& memory) const { shared_->push_back(&memory); }
  void unshare(const SharedMemory& memory) const { std::erase(*shared_, &memory); }
  const std::vector<const SharedMemory*>& shared() const { return *shared_; }
  // Number of neighbouring ranks that form a node: sums and gathers cross between nodes once. 1:
  // not divided into nodes.
  int64_t locals() const { return locals_; }
  // `locals` must divide the size of the group.
  void in_nodes(int64_t locals) { locals_ = locals < size_ ? locals : 1; }

 private:
  std::string axis_ = "one";
  int64_t rank_ = 0, size_ = 1, locals_ = 1;
  uint64_t group_ = 0;
  GroupRanks ranks_;
  Journal* journal_ = nullptr;
  std::byte* gpu_counter_ = nullptr;
  bool ordered_ = false;
  struct Closer {
    void operator()(GpuGroup* group) const;
  };
  std::unique_ptr<GpuGroup, Closer> gpus_;
  std::unique_ptr<std::vector<const SharedMemory*>> shared_ = std::make_unique<std::vector<const SharedMemory*>>();
};

inline const Comm kAlone;  // a group of one rank

}  // namespace trireme
