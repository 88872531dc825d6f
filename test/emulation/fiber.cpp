#include "test/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

// The address sanitizer must know of every change of stacks, and that the contents of an abandoned
// one are gone.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** shadow, const void* stack, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* shadow, const void** stack, size_t* bytes);
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* memory, size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* memory, size_t bytes);
}

// Saves what the System V ABI preserves on this stack, its pointer in *from, and continues on the
// stack at `to`.
extern "C" void trireme_switch_stack(void** from, void* to);
asm(R"(
.text
.globl trireme_switch_stack
.type trireme_switch_stack, @function
trireme_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  movq %rbx, %rdi
  ret
.size trireme_switch_stack, .-trireme_switch_stack
)");

namespace trireme::emulation {
namespace {

constexpr size_t kPage = 4096, kStack = 256 << 10;  // only used pages are touched

}  // namespace

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
  allow(memory_ + kPage, kStack);
  // Stack as trireme_switch_stack leaves it: six registers, of which rbx becomes enter's argument,
  // and the address to continue at. A function expects its stack 8 bytes off a multiple of 16, with
  // its return address there: none.
  auto* top = reinterpret_cast<uint64_t*>(memory_ + kPage + kStack);
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&Fiber::enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  top[4] = reinterpret_cast<uint64_t>(this);
  stack_pointer_ = top;
}

bool Fiber::resume() {
  if (ended_) return true;
  void* shadow = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&shadow, memory_ + kPage, kStack);
  trireme_switch_stack(&host_pointer_, stack_pointer_);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(shadow, nullptr, nullptr);
  return ended_;
}

void Fiber::pause() { leave(false); }

void Fiber::leave(bool forever) {
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(forever ? nullptr : &host_shadow_, host_stack_, host_stack_bytes_);
  trireme_switch_stack(&stack_pointer_, host_pointer_);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(host_shadow_, &host_stack_, &host_stack_bytes_);
}

void Fiber::enter(Fiber* fiber) {
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(nullptr, &fiber->host_stack_, &fiber->host_stack_bytes_);
  fiber->work_(fiber->argument_);
  fiber->ended_ = true;
  fiber->leave(true);
}

}  // namespace trireme::emulation
