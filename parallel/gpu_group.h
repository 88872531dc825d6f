// GpuGroup: what moves between the GPUs of the ranks of a Comm. By NCCL in nccl.cpp; a build without NCCL has nccl_absent.cpp.
//
// Each call hands work to a lane and returns. Work of one group is done in the order in which it was handed over, whatever its
// lanes; every rank hands over the same work in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda_machine.h"
#include "kernels/tensor.h"
#include "parallel/comm.h"

namespace trireme {

class GpuGroup {
 public:
  enum class Sum { add, max };
  // Of the order in which `add` adds nothing is known but that every rank gets the same bits.
  virtual ~GpuGroup() = default;
  virtual void all_reduce(CudaLane& lane, Tensor x, Sum sum) = 0;
  virtual void reduce_scatter(CudaLane& lane, Tensor part, Tensor all) = 0;  // part may be this rank's part of all
  virtual void all_gather(CudaLane& lane, Tensor all, Tensor part) = 0;      // likewise
  virtual void broadcast(CudaLane& lane, Tensor x, int64_t root) = 0;

  // Part r of `to` = part `rank` of rank r's `from`, where each rank's `from` lies in one piece for each other rank; this rank's
  // own is left out.
  virtual void exchange(CudaLane& lane, const std::vector<Tensor>& to, const std::vector<Tensor>& from) = 0;

  // Messages over links. Those of each link and direction have an order of their own.
  virtual void send(CudaLane& lane, Tensor x, int64_t peer, Channel channel) = 0;
  virtual void receive(CudaLane& lane, Tensor x, int64_t peer, Channel channel) = 0;

  // Memory that is sent from and received into again and again: known beforehand, it needs no copies on the way, where the
  // connections can do without. nullptr: there is nothing to be gained. It is forgotten before the memory goes.
  virtual void* know(std::byte* memory, int64_t bytes) = 0;
  virtual void forget(void* known) noexcept = 0;

  // Error where something has gone wrong meanwhile that no call has told, such as a connection that is gone.
  virtual void check() const = 0;
};

// Memory known to a group as long as this lives. All ranks of the group have theirs at the same time.
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

// All ranks of the group call it, all groups of a mesh in the same order. With `ring`, neighbours, of whom the last has the first,
// and the two ends, have links. Returns when every rank has reached every other. Error with NCCL's reason.
std::unique_ptr<GpuGroup> open_gpu_group(const Comm& comm, bool ring);

}  // namespace trireme
