// Buckets: gradients leave for the other replicas, bucket by bucket, while backward still computes the rest.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "kernels/tensor.h"
#include "parallel/comm.h"

namespace trireme {

class Buckets {
 public:
  // One bucket for each of `gradients`: flat, f32, done at one moment. The Comm, dp's, and the device outlive the buckets.
  Buckets(const Comm& dp, Device& device, std::vector<Tensor> gradients);

  // Starts to sum a bucket over the replicas. What `compute` was handed so far has written it.
  void send(Stream& compute, size_t bucket);
  // What `compute` is handed from here on finds the sums, of all buckets sent and of `loss`.
  void finish(Stream& compute, Tensor loss);

 private:
  const Comm& dp_;
  Device& device_;
  std::vector<Tensor> gradients_;
};

}  // namespace trireme
