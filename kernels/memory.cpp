#include "kernels/memory.h"

#include <sys/mman.h>

#include "kernels/cuda_machine.h"

namespace trireme {

std::byte* map_memory(int64_t bytes, const char* what) {
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw Error(text("out of memory: ", bytes, " bytes for ", what));
  madvise(mapped, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer TLB misses; harmless if refused
  return static_cast<std::byte*>(mapped);
}

void unmap_memory(std::byte* memory, int64_t bytes) { munmap(memory, static_cast<size_t>(bytes)); }

Buffer::Buffer(Device& device, int64_t bytes, const char* what, Memory memory)
    : ledger_(device.ledger()), place_(device.place()), memory_(memory), on_gpu_(device.gpu_allocator()), bytes_(bytes) {
  require(memory == Memory::own || place_ != Place::cpu, text("pinned memory on place cpu for ", what));
  require(bytes >= 0, text("a buffer of ", bytes, " bytes for ", what));
  if (place_ == Place::none || bytes == 0) return;
  ledger_.allocate(bytes, what);
  if (place_ == Place::cuda) {
    data_ = memory == Memory::pinned ? allocate_pinned(bytes) : on_gpu_.allocate(bytes);
    return;
  }
  data_ = map_memory(bytes, what);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (place_ == Place::cuda)
    memory_ == Memory::pinned ? free_pinned(data_) : on_gpu_.free(data_);
  else
    unmap_memory(data_, bytes_);
  ledger_.release(data_, bytes_);
}

Tensor Arena::take(Dtype dtype, std::initializer_list<int64_t> shape) {
  Tensor sized(nullptr, dtype, Place::none, shape);
  const int64_t begin = used_;
  const int64_t bytes = (sized.bytes() + kAlign - 1) / kAlign * kAlign;
  require(bytes <= capacity() - begin, text("arena ", name_, " is full: ", sized, " needs ", bytes, " bytes, ", capacity() - begin,
                                            " of ", capacity(), " are left"));
  used_ = begin + bytes;
  peak_ = std::max(peak_, used_);
  return Tensor(buffer_.data() == nullptr ? nullptr : buffer_.data() + begin, dtype, buffer_.place(), shape);
}

Tensor Arena::flat(Dtype dtype) const { return Tensor(buffer_.data(), dtype, buffer_.place(), {used_ / bytes_of(dtype)}); }

}  // namespace trireme
