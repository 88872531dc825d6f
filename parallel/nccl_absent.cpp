// Collectives of Place::cuda where there is no NCCL: of one rank.
#include "kernels/cuda_machine.h"
#include "parallel/collectives.h"

namespace trireme {
namespace {

void alone(const Comm& comm, const char* op) {
  require(comm.size() == 1, text(op, " along ", comm.axis(), " on GPUs: built without NCCL"));
}

void move(const Cuda& cuda, const Tensor& to, const Tensor& from) {
  if (to.data() != from.data()) copy_bytes(*cuda.lane, to.data(), from.data(), from.bytes());
}

}  // namespace

void launch(const Comm& comm, const Cuda&, const AllReduce&) { alone(comm, AllReduce::name); }
void launch(const Comm& comm, const Cuda&, const Broadcast&) { alone(comm, Broadcast::name); }

void launch(const Comm& comm, const Cuda& cuda, const ReduceScatter& op) {
  alone(comm, ReduceScatter::name);
  require(!op.accumulate, text("a group of one adds nothing up"));
  move(cuda, op.part, op.all);
}

void launch(const Comm& comm, const Cuda& cuda, const AllGather& op) {
  alone(comm, AllGather::name);
  move(cuda, op.all, op.part);
}

void launch(const Comm&, const Cuda&, const Send&) { throw Error("a message between GPUs: built without NCCL"); }
void launch(const Comm&, const Cuda&, const Receive&) { throw Error("a message between GPUs: built without NCCL"); }
void launch(const Comm&, const Cuda&, const TreeEnter&) { throw Error("invariant numerics on a GPU: built without them"); }

}  // namespace trireme
