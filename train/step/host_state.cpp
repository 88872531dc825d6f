#include "train/step/host_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/copy.h"

namespace trireme {
namespace {

constexpr int64_t kAlign = 4096;  // bytes: alignment of each copy
constexpr int64_t kBlock = 4 << 20;

int64_t room_for(const TensorSlice& slice) { return (slice.local.bytes() + kAlign - 1) / kAlign * kAlign; }

Tensor shaped_like(const Tensor& t, void* data) {
  if (t.dims() == 1) return Tensor(data, t.dtype(), Place::cpu, {t.dim(0)});
  require(t.dims() == 2, text("cannot copy a shard of ", t, " to host memory: it must have 1 or 2 dimensions"));
  return Tensor(data, t.dtype(), Place::cpu, {t.dim(0), t.dim(1)});
}

// Writes to every page, so that a system with too little memory fails now and not at the first save.
void touch(std::byte* memory, int64_t bytes) {
#pragma omp parallel for schedule(static)
  for (int64_t at = 0; at < bytes; at += 4096) *static_cast<volatile std::byte*>(memory + at) = std::byte{0};
}

// Copies with all threads, as the compute lane of Place::cpu does.
void copy_blocks(const Tensor& to, const Tensor& from) {
  const int64_t bytes = from.bytes(), blocks = (bytes + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = i * kBlock;
    std::memcpy(static_cast<std::byte*>(to.data()) + begin, static_cast<const std::byte*>(from.data()) + begin,
                static_cast<size_t>(std::min(kBlock, bytes - begin)));
  }
}

bool lies_on_host(const TensorSlice& slice) { return slice.local.place() == Place::cpu; }

// With train.offload, the optimizer's arena is the host's memory, which lanes of a GPU reach, too.
void place_on_host(std::vector<TensorSlice>& slices, const Arena& offloaded) {
  const std::byte* const begin = offloaded.buffer().data();
  for (TensorSlice& slice : slices) {
    const auto* const at = static_cast<const std::byte*>(slice.local.data());
    if (begin <= at && at < begin + offloaded.capacity()) slice.local = shaped_like(slice.local, slice.local.data());
  }
}

}  // namespace

std::vector<TensorSlice> state_slices(const TrainState& run, Ownership which) {
  const bool once = which == Ownership::saved;
  std::vector<TensorSlice> slices;
  if (!once || run.mesh.in_first_copy()) slices = run.optimizer.slices(once);
  for (TensorSlice& slice : run.optimizer.own_slices(once)) slices.push_back(std::move(slice));
  if (run.config.train.offload == Offload::optimizer && run.device.place() == Place::cuda)
    place_on_host(slices, run.arenas.optimizer);
  return slices;
}

int64_t bytes_of(const std::vector<TensorSlice>& slices) {
  int64_t bytes = 0;
  for (const TensorSlice& slice : slices) bytes += room_for(slice);
  return bytes;
}

Tensor on_host(Device& device, const Tensor& x, std::vector<std::byte>& memory) {
  Tensor here = x;
  if (device.place() == Place::cuda) {
    memory.resize(static_cast<size_t>(x.bytes()));
    here = Tensor(memory.data(), x.dtype(), Place::cpu, {x.size()});
    copy(device.compute(), here, x.view({x.size()}));
  }
  device.compute().finish();
  return here;
}

HostState::HostState(Device& device, std::vector<TensorSlice> slices, Copies copies)
    : device_(device), device_slices_(std::move(slices)), host_(device_slices_) {
  if (copies == Copies::where_needed && device.place() != Place::cuda) return;
  memory_.emplace(device, bytes_of(host_));
  if (device.place() == Place::cpu) touch(memory_->data(), bytes_of(host_));
  std::byte* at = memory_->data();
  for (TensorSlice& slice : host_) {
    const int64_t room = room_for(slice);
    slice.local = shaped_like(slice.local, at);
    at += room;
  }
}

// A GPU's lane would copy from the host to the host with one thread, and keep this one waiting meanwhile. No other thread can do
// it either, since the next step changes what is copied.
void HostState::fetch() {
  if (!memory_) return;
  Stream& stream = device_.compute();
  if (std::ranges::any_of(device_slices_, lies_on_host)) stream.finish();
  for (size_t i = 0; i < host_.size(); ++i)
    if (!lies_on_host(device_slices_[i])) copy(stream, host_[i].local, device_slices_[i].local);
  memory_->posted(stream);
  for (size_t i = 0; i < host_.size(); ++i)
    if (lies_on_host(device_slices_[i])) copy_blocks(host_[i].local, device_slices_[i].local);
}

void HostState::wait() const {
  if (memory_) memory_->wait();
}

void HostState::store() {
  if (!memory_) return;
  for (size_t i = 0; i < host_.size(); ++i) copy(device_.compute(), device_slices_[i].local, host_[i].local);
  device_.compute().finish();
}

}  // namespace trireme
