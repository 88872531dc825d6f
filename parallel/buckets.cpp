#include "parallel/buckets.h"

#include "parallel/collectives.h"

namespace trireme {

Buckets::Buckets(const Comm& dp, Device& device, int64_t zero) : dp_(dp), device_(device), parts_(zero > 0 ? dp.size() : 1) {}

Tensor Buckets::mine(const Tensor& flat) const {
  const int64_t size = flat.size() / parts_;
  return flat.slice(part() * size, (part() + 1) * size);
}

void Buckets::send(Stream& compute, Tensor gradients) {
  if (dp_.size() == 1 || gradients.size() == 0) return;
  Stream& comm = device_.comm();
  comm.wait(compute.record());  // a bucket is sent only after backward has written it
  if (parts_ > 1)
    run(dp_, comm, ReduceScatter{.part = mine(gradients), .all = gradients});
  else
    run(dp_, comm, AllReduce{.x = gradients});
}

void Buckets::sum_replicas(Stream& compute, Tensor x) {
  if (dp_.size() == 1) return;
  Stream& comm = device_.comm();
  comm.wait(compute.record());  // x is written
  run(dp_, comm, AllReduce{.x = x});
}

Event Buckets::gather(Stream& compute, Tensor flat) {
  if (parts_ == 1 || flat.size() == 0) return {};
  Stream& comm = device_.comm();
  comm.wait(compute.record());  // the part is written
  run(dp_, comm, AllGather{.all = flat, .part = mine(flat)});
  return comm.record();
}

void Buckets::finish(Stream& compute) {
  if (dp_.size() > 1) compute.wait(device_.comm().record());
}

void Buckets::sum_parts(Stream& compute, Tensor x) {
  if (parts_ == 1) return;
  sum_replicas(compute, x);
  finish(compute);
}

}  // namespace trireme
