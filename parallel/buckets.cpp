#include "parallel/buckets.h"

#include "parallel/collectives.h"

namespace trireme {

Buckets::Buckets(const Comm& dp, Device& device, std::vector<Tensor> gradients)
    : dp_(dp), device_(device), gradients_(std::move(gradients)) {}

void Buckets::send(Stream& compute, size_t bucket) {
  if (dp_.size() == 1 || gradients_.at(bucket).size() == 0) return;
  Stream& comm = device_.comm();
  comm.wait(compute.record());  // a bucket is sent only after backward has written it
  run(dp_, comm, AllReduce{.x = gradients_[bucket]});
}

void Buckets::finish(Stream& compute, Tensor loss) {
  if (dp_.size() == 1) return;
  Stream& comm = device_.comm();
  comm.wait(compute.record());  // the loss is whole
  run(dp_, comm, AllReduce{.x = loss});
  compute.wait(comm.record());  // the optimizer reads the sums
}

}  // namespace trireme
