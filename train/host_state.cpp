#include "train/host_state.h"

#include "kernels/copy.h"

namespace trireme {
namespace {

Tensor shaped_like(const Tensor& t, void* data) {
  if (t.dims() == 1) return Tensor(data, t.dtype(), Place::cpu, {t.dim(0)});
  require(t.dims() == 2, text("a shard of ", t, " in host memory"));
  return Tensor(data, t.dtype(), Place::cpu, {t.dim(0), t.dim(1)});
}

}  // namespace

HostState::HostState(Stream& stream, std::vector<NamedShard> shards) : stream_(stream), device_(std::move(shards)), host_(device_) {
  if (stream.place() != Place::cuda) return;
  int64_t bytes = 0;
  for (const NamedShard& shard : device_) bytes += shard.local.bytes();
  memory_.resize(static_cast<size_t>(bytes));
  std::byte* at = memory_.data();
  for (NamedShard& shard : host_) {
    shard.local = shaped_like(shard.local, at);
    at += shard.local.bytes();
  }
}

void HostState::fetch() {
  if (memory_.empty()) return;
  for (size_t i = 0; i < host_.size(); ++i) copy(stream_, host_[i].local, device_[i].local);
  stream_.finish();
}

void HostState::store() {
  if (memory_.empty()) return;
  for (size_t i = 0; i < host_.size(); ++i) copy(stream_, device_[i].local, host_[i].local);
  stream_.finish();
}

}  // namespace trireme
