#include "kernels/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "kernels/cuda_machine.h"

namespace trireme {

namespace {

// Maps a file, or if it is -1 memory of this process alone.
std::byte* map_memory_of(int file, int64_t bytes, const char* what) {
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, kind, file, 0);
  if (mapped == MAP_FAILED) throw Error(text("out of memory: ", bytes, " bytes for ", what));
  madvise(mapped, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer TLB misses; harmless if refused
  return static_cast<std::byte*>(mapped);
}

// Whether a file of this size can lie in memory. A signal would end the process where it exceeds the limit of files, and where
// the kernel counts strictly and then has no page. Where address space is limited, others' files would take it.
bool may_lie_in_memory(int64_t bytes) {
  struct rlimit most {};
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < static_cast<rlim_t>(bytes)) return false;
  if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY) return false;
  return !text_of_file("/proc/sys/vm/overcommit_memory", 16).starts_with('2');
}

// A file in memory; -1 if the system refuses.
int file_in_memory(int64_t bytes, const char* what) {
  if (!may_lie_in_memory(bytes)) return -1;
  unmap_memory(map_memory(bytes, what), bytes);  // throws if there is not as much: of files, any size can be mapped
  const int file = memfd_create(what, MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, bytes) == 0) return file;
  close(file);
  return -1;
}

}  // namespace

std::byte* map_memory(int64_t bytes, const char* what) { return map_memory_of(-1, bytes, what); }

void unmap_memory(std::byte* memory, int64_t bytes) { munmap(memory, static_cast<size_t>(bytes)); }

Buffer::Buffer(Device& device, int64_t bytes, const char* what, Memory memory)
    : ledger_(device.ledger()), place_(device.place()), memory_(memory), on_gpu_(device.gpu_allocator()), bytes_(bytes) {
  require(memory != Memory::pinned || place_ != Place::cpu, text("pinned memory on place cpu for ", what));
  require(memory != Memory::shared || place_ != Place::cuda, text("shared memory on place cuda for ", what));
  require(bytes >= 0, text("a buffer of ", bytes, " bytes for ", what));
  if (place_ == Place::none || bytes == 0) return;
  ledger_.allocate(bytes, what);
  if (place_ == Place::cuda) {
    const bool pinned = memory == Memory::pinned;
    data_ = pinned ? allocate_pinned(bytes) : on_gpu_.allocate(bytes);
    require(data_ != nullptr, text("out of memory: ", bytes, " bytes of ", pinned ? "pinned host memory" : "the GPU", " for ", what,
                                   pinned ? kLessPinned : kLessOnGpu));
    return;
  }
  if (memory == Memory::shared) file_ = file_in_memory(bytes, what);
  data_ = map_memory_of(file_, bytes, what);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (place_ == Place::cuda)
    memory_ == Memory::pinned ? free_pinned(data_) : on_gpu_.free(data_);
  else
    unmap_memory(data_, bytes_);
  if (file_ >= 0) close(file_);
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
