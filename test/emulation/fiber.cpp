#include "test/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* memory, size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* memory, size_t bytes);
}

namespace trireme::emulation {
bool forbid(const void* memory, size_t bytes) {
  if (__asan_poison_memory_region == nullptr) return false;
  __asan_poison_memory_region(memory, bytes);
  return true;
}
bool allow(const void* memory, size_t bytes) {
  if (__asan_unpoison_memory_region == nullptr) return false;
  __asan_unpoison_memory_region(memory, bytes);
  return true;
}

Fiber::Fiber() {
  void* memory = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  mprotect(memory_, kPage, PROT_NONE);
}

Fiber::~Fiber() { munmap(memory_, kPage + kStack); }

void Fiber::begin(void (*work)(void*), void* argument) {
  work_ = work, argument_ = argument, ended_ = false;
  allow(stack(), kStack);
  // Stack as switch_stack leaves it: the address to continue at, rbp, and here enter's argument. A function expects its stack
  // 8 bytes off a multiple of 16, with its return address there: none.
  auto* top = reinterpret_cast<uint64_t*>(stack() + kStack);
  *--top = reinterpret_cast<uint64_t>(this);
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&Fiber::enter);
  stack_pointer_ = top;
}

void Fiber::pause() {
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&host_shadow_, host_stack_, host_stack_bytes_);
  switch_stack(&stack_pointer_, host_pointer_);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(host_shadow_, &host_stack_, &host_stack_bytes_);
}

void Fiber::end() {
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(nullptr, host_stack_, host_stack_bytes_);
  switch_stack(&stack_pointer_, host_pointer_);
}

void Fiber::enter(Fiber* fiber) {
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(nullptr, &fiber->host_stack_, &fiber->host_stack_bytes_);
  fiber->work_(fiber->argument_);
  fiber->ended_ = true;
  fiber->end();
}

}  // namespace trireme::emulation
