#include "test/simulation/heap.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace trireme::simulation {

namespace {

constexpr size_t kPage = 1 << 16;

Heap* owner = nullptr;
int initialising = 0;        // static variables whose initialisation runs: they outlive any process
std::byte* spare = nullptr;  // pages of processes that have ended, each with the address of the next

// Precedes what `new` returns.
struct alignas(16) Header {
  Heap* heap;
  size_t bytes;  // with the header
};

void* allocate(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

std::byte*& link_of(std::byte* page) { return *reinterpret_cast<std::byte**>(page); }

}  // namespace

Heap* own_by(Heap* heap) { return std::exchange(owner, heap); }

void Heap::clear() {
  free_.fill(nullptr);
  while (pages_ != nullptr) {
    std::byte* const page = std::exchange(pages_, link_of(pages_));
    link_of(page) = std::exchange(spare, page);
  }
  next_ = end_ = nullptr;
  while (large_.after != &large_) {
    Large* const block = large_.after;
    large_.after = block->after;
    std::free(block);
  }
  large_.before = &large_;
}

void* Heap::take_small(size_t bytes) {
  const size_t size = (bytes + kStep - 1) / kStep;
  if (Free* const block = free_[size]; block != nullptr) return free_[size] = block->next, block;
  if (static_cast<size_t>(end_ - next_) < size * kStep) {
    std::byte* const page = spare == nullptr ? static_cast<std::byte*>(allocate(kPage)) : std::exchange(spare, link_of(spare));
    link_of(page) = std::exchange(pages_, page);
    next_ = page + kStep, end_ = page + kPage;
  }
  return std::exchange(next_, next_ + size * kStep);
}

void* Heap::take(size_t bytes) {
  if (bytes <= kLargestSmall) return take_small(bytes);
  auto* const block = ::new (allocate(sizeof(Large) + bytes)) Large;
  block->before = &large_, block->after = large_.after;
  large_.after->before = block, large_.after = block;
  return block + 1;
}

void Heap::give_back(void* memory, size_t bytes) noexcept {
  if (bytes <= kLargestSmall) {
    Free*& list = free_[(bytes + kStep - 1) / kStep];
    list = ::new (memory) Free{list};
    return;
  }
  Large* const block = static_cast<Large*>(memory) - 1;
  block->before->after = block->after, block->after->before = block->before;
  std::free(block);
}

namespace {

void* take(size_t bytes) {
  Heap* const heap = initialising == 0 ? owner : nullptr;
  const size_t all = sizeof(Header) + bytes;
  auto* const header = ::new (heap == nullptr ? allocate(all) : heap->take(all)) Header{heap, all};
  return header + 1;
}

void* take_or_null(size_t bytes) noexcept {
  try {
    return take(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  Header* const header = static_cast<Header*>(memory) - 1;
  if (header->heap == nullptr) return std::free(header);
  header->heap->give_back(header, header->bytes);
}

}  // namespace

}  // namespace trireme::simulation

// The language's own allocation, for the whole program.
void* operator new(size_t bytes) { return trireme::simulation::take(bytes); }
void* operator new[](size_t bytes) { return trireme::simulation::take(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return trireme::simulation::take_or_null(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return trireme::simulation::take_or_null(bytes); }
void operator delete(void* memory) noexcept { trireme::simulation::give_back(memory); }
void operator delete[](void* memory) noexcept { trireme::simulation::give_back(memory); }
void operator delete(void* memory, size_t) noexcept { trireme::simulation::give_back(memory); }
void operator delete[](void* memory, size_t) noexcept { trireme::simulation::give_back(memory); }

// Guards of static variables inside functions. The first byte says that the variable exists.
extern "C" {
int __cxa_guard_acquire(long long* guard) {
  if (*reinterpret_cast<char*>(guard) != 0) return 0;
  ++trireme::simulation::initialising;
  return 1;
}
void __cxa_guard_release(long long* guard) {
  *reinterpret_cast<char*>(guard) = 1;
  --trireme::simulation::initialising;
}
void __cxa_guard_abort(long long*) { --trireme::simulation::initialising; }
}
