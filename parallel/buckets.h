// Buckets: gradients leave for the other replicas, bucket by bucket, while backward still computes the rest; and updated weights
// come back. With parts, each replica sums and updates its own part of every bucket alone (ZeRO 1).
#pragma once

#include <vector>

#include "kernels/device.h"
#include "kernels/tensor.h"
#include "parallel/comm.h"

namespace trireme {

class Buckets {
 public:
  // The Comm, dp's, and the device outlive the buckets. zero: parallel.zero.
  Buckets(const Comm& dp, Device& device, int64_t zero);

  int64_t parts() const { return parts_; }                      // the replicas, or 1 where each holds all
  int64_t part() const { return parts_ > 1 ? dp_.rank() : 0; }  // this replica's
  Tensor mine(const Tensor& flat) const;                        // its part of a flat tensor, whose size is a multiple of parts()

  // Starts to sum a bucket of gradients, flat f32, over the replicas: of mine(gradients) the sum is left. What `compute` was handed
  // so far has written it.
  void send(Stream& compute, Tensor gradients);
  // Starts to sum x over the replicas.
  void sum_replicas(Stream& compute, Tensor x);
  // Starts to fill a flat tensor of which each replica has its own part. The event: it is whole.
  Event gather(Stream& compute, Tensor flat);
  // What `compute` is handed from here on finds the results of all that was started.
  void finish(Stream& compute);

  // x [1]: summed over the parts, at once.
  void sum_parts(Stream& compute, Tensor x);

 private:
  const Comm& dp_;
  Device& device_;
  int64_t parts_;
};

}  // namespace trireme
