#include "test/simulation/heap.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace trireme::simulation {

namespace {

Heap* owner = nullptr;
int initialising = 0;  // static variables whose initialisation runs: they outlive any process

void unlink_block(Block& block) {
  block.before->after = block.after;
  block.after->before = block.before;
}

}  // namespace

Heap* own_by(Heap* heap) { return std::exchange(owner, heap); }

void Heap::clear() {
  while (blocks_.after != &blocks_) {
    Block* const block = blocks_.after;
    unlink_block(*block);
    std::free(block);
  }
}

namespace {

void* take(size_t bytes) {
  void* const memory = std::malloc(sizeof(Block) + bytes);
  if (memory == nullptr) throw std::bad_alloc();
  auto* const block = ::new (memory) Block;
  if (owner != nullptr && initialising == 0) {
    Block& list = owner->blocks();
    block->before = &list, block->after = list.after;
    list.after->before = block, list.after = block;
  }
  return block + 1;
}

void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  unlink_block(*block);
  std::free(block);
}

}  // namespace

}  // namespace trireme::simulation

// The language's own allocation, for the whole program.
void* operator new(size_t bytes) { return trireme::simulation::take(bytes); }
void* operator new[](size_t bytes) { return trireme::simulation::take(bytes); }
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
