// Buckets: gradients leave for the other replicas, bucket by bucket, while backward still computes the rest; and updated weights
// come back. With parts, each replica sums and updates its own part of every bucket alone (ZeRO: Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", 2020).
//
// Everything runs on the communication lane in the order of the calls, after what the compute lane was handed so far.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "kernels/tensor.h"
#include "parallel/comm.h"

namespace trireme {

class Buckets {
 public:
  // The Comm, dp's, and the device outlive the buckets. zero: parallel.zero. bf16_on_wire: gradients travel as bf16.
  Buckets(const Comm& dp, Device& device, int64_t zero, bool bf16_on_wire);

  int64_t parts() const { return parts_; }                      // the replicas, or 1 where each holds all
  int64_t part() const { return parts_ > 1 ? dp_.rank() : 0; }  // this replica's

  // Sums a bucket of gradients, flat f32, over the replicas. With parts, only `part` of it, a view of gradients or memory beside
  // it.
  void send(Tensor gradients, Tensor part);
  // part += its part of the sum over the replicas; then gradients = 0. The event: they are.
  Event add(Tensor gradients, Tensor part);
  // The replicas' gradients, or their part, enter the tree's sums one by one, as addends number `first` and on; then gradients = 0.
  Event enter(Tensor gradients, Tensor tree, int64_t first);
  // tree's first row = the sum of the `count` addends that have entered.
  void close(Tensor tree, int64_t count);
  // Sums x over the replicas.
  void sum_replicas(Tensor x);
  // Fills a flat tensor of which each replica has its own part. The event: it is whole.
  Event gather(Tensor flat, Tensor part);
  // What `compute` is handed from here on finds the results of all that was started.
  void finish();

  // The lane for what belongs into the same order, ready to be handed work.
  Stream& lane();

 private:
  const Comm& dp_;
  Device& device_;
  int64_t parts_;
  bool bf16_on_wire_;
};

}  // namespace trireme
