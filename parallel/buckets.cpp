#include "parallel/buckets.h"

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {

Buckets::Buckets(const Comm& dp, Device& device, int64_t zero, bool bf16_on_wire)
    : dp_(dp), device_(device), parts_(zero > 0 ? dp.size() : 1), bf16_on_wire_(bf16_on_wire) {}

// One rank without replicas needs no lane: there is nothing to overlap with.
Stream& Buckets::lane() {
  if (dp_.size() == 1) return device_.compute();
  Stream& comm = device_.comm();
  comm.wait(device_.compute().record());  // a bucket is sent only after backward has written it, weights after the update
  return comm;
}

void Buckets::send(Tensor gradients, Tensor part) {
  if (dp_.size() == 1 || gradients.size() == 0) return;
  if (parts_ > 1)
    run(dp_, lane(), ReduceScatter{.part = part, .all = gradients, .bf16_on_wire = bf16_on_wire_});
  else
    run(dp_, lane(), AllReduce{.x = gradients, .bf16_on_wire = bf16_on_wire_});
}

Event Buckets::add(Tensor gradients, Tensor part) {
  Stream& stream = lane();
  run(dp_, stream, ReduceScatter{.part = part, .all = gradients, .accumulate = true, .bf16_on_wire = bf16_on_wire_});
  run(stream, Fill{.x = gradients});
  return stream.record();
}

Event Buckets::enter(Tensor gradients, Tensor tree, int64_t first) {
  Stream& stream = lane();
  run(dp_, stream, TreeEnter{.tree = tree, .all = gradients, .first = first});
  run(stream, Fill{.x = gradients});
  return stream.record();
}

void Buckets::close(Tensor tree, int64_t count) { run(lane(), TreeClose{.tree = tree, .count = count}); }

void Buckets::sum_replicas(Tensor x) {
  if (dp_.size() > 1) run(dp_, lane(), AllReduce{.x = x});
}

Event Buckets::gather(Tensor flat, Tensor part) {
  if (parts_ == 1 || flat.size() == 0) return {};
  Stream& stream = lane();
  run(dp_, stream, AllGather{.all = flat, .part = part});
  return stream.record();
}

void Buckets::finish() {
  if (dp_.size() > 1) device_.compute().wait(device_.comm().record());
}

}  // namespace trireme
