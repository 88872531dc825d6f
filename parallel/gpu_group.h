// GpuGroup: transfers between the GPUs of the ranks of a Comm. NCCL implements it in nccl.cpp; a
// build without NCCL has nccl_absent.cpp.
//
// Each call enqueues work to a lane and returns. Work of a group runs in the order of the calls,
// whatever its lanes. Every rank makes the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda_machine.h"
#include "kernels/tensor.h"
#include "parallel/comm.h"

namespace trireme {

class GpuGroup {
 public:
  enum class Sum { add, max };
  // The order of sums is unspecified, but every rank gets the same bits.
  virtual ~GpuGroup() = default;
  virtual void all_reduce(CudaLane& lane, Tensor x, Sum sum) = 0;
  virtual void reduce_scatter(CudaLane& lane, Tensor part, Tensor all) = 0;  // part may be this rank's part of all
  virtual void all_gather(CudaLane& lane, Tensor all, Tensor part) = 0;      // likewise
  virtual void broadcast(CudaLane& lane, Tensor x, int64_t root) = 0;
  virtual void reduce(CudaLane& lane, Tensor sum, Tensor x, int64_t root) = 0;  // sum: absent elsewhere; may be x

  // Part r of `to` = part `rank` of rank r's `from`. Each rank's `from` has one piece for each
  // other rank and none for itself.
  virtual void exchange(CudaLane& lane, const std::vector<Tensor>& to, const std::vector<Tensor>& from) = 0;

  // Messages over links. Those of one link and direction arrive in order.
  virtual void send(CudaLane& lane, Tensor x, int64_t peer, Channel channel) = 0;
  virtual void receive(CudaLane& lane, Tensor x, int64_t peer, Channel channel) = 0;

  // Registers memory that is sent or received repeatedly, so that no copies are made where
  // connections allow it. nullptr: no benefit. Unregister it before the memory is freed.
  virtual void* know(std::byte* memory, int64_t bytes) = 0;
  virtual void forget(void* known) noexcept = 0;

  // Throws Error after an asynchronous failure that no call has reported, such as a lost
  // connection.
  virtual void check() const = 0;
};

// Allocator of memory that benefits from being registered, if the library has one.
std::optional<GpuAllocator> known_memory_allocator();

// Memory registered with a group for the object's lifetime. All ranks of the group hold theirs at
// the same time.
class KnownMemory {
 public:
  KnownMemory(GpuGroup& group, std::byte* memory, int64_t bytes) : group_(group), known_(group.know(memory, bytes)) {}
  ~KnownMemory() {
    if (known_ != nullptr) group_.forget(known_);
  }
  KnownMemory(const KnownMemory&) = delete;
  KnownMemory& operator=(const KnownMemory&) = delete;

 private:
  GpuGroup& group_;
  void* known_;
};

// Memory of the host that kernels access for the object's lifetime.
class GpuWindow {
 public:
  explicit GpuWindow(std::span<std::byte> memory)
      : memory_(memory), on_gpu_(open_to_gpu(memory.data(), static_cast<int64_t>(memory.size()))) {}
  ~GpuWindow() {
    if (on_gpu_ != nullptr) close_to_gpu(memory_.data());
  }
  GpuWindow(const GpuWindow&) = delete;
  GpuWindow& operator=(const GpuWindow&) = delete;
  bool opened() const { return on_gpu_ != nullptr; }  // false: the driver has refused
  // The GPU's address of a byte of the memory; nullptr for nullptr, or if the driver has refused.
  std::byte* at(const std::byte* byte) const {
    return byte == nullptr || on_gpu_ == nullptr ? nullptr : on_gpu_ + (byte - memory_.data());
  }

 private:
  std::span<std::byte> memory_;
  std::byte* on_gpu_;
};

// Opens the group. All ranks of the group call it, all groups of a mesh in the same order. With a
// ring, neighbours (including the last and the first) have links, and so do the two ends. Returns
// once every rank has reached those that it will. Error with NCCL's reason.
std::unique_ptr<GpuGroup> open_gpu_group(const Comm& comm, const GpuUse& use);

}  // namespace trireme
