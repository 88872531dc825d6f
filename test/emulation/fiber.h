// A Fiber runs a function on its own stack until it pauses or ends; for x86-64. Each CUDA thread of
// the emulation is one.
#pragma once

#include <cstddef>

// The address sanitizer must know of every change of stacks, and that the contents of an abandoned
// one are gone.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** shadow, const void* stack, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* shadow, const void** stack, size_t* bytes);
}

namespace trireme::emulation {

// Saves this stack's pointer in *from, and continues on the stack at `to`, which this has left or
// Fiber::begin has made. Only jumps: a processor predicts returns by the calls before, and those of
// the next thread are as a rule the same.
[[gnu::always_inline, gnu::target("general-regs-only")]] inline void switch_stack(void** from, void* to) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n"  // what a function may use below its stack's pointer
      "pushq %%rbp\n"
      "leaq 1f(%%rip), %%rax\n"
      "pushq %%rax\n"
      "movq %%rsp, (%%rdi)\n"
      "movq %%rsi, %%rsp\n"
      "popq %%rax\n"
      "popq %%rbp\n"
      "movq (%%rsp), %%rdi\n"  // the argument of what begins
      "jmpq *%%rax\n"
      "1:\n"
      "leaq 128(%%rsp), %%rsp\n"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}

// Under the address sanitizer, forbids or allows access to these bytes. Otherwise does nothing and
// returns false.
bool forbid(const void* memory, size_t bytes);
bool allow(const void* memory, size_t bytes);

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Sets the function to run, with its argument, from the next resume() on; abandons what ran
  // before. It must not throw.
  void begin(void (*work)(void*), void* argument);
  // Runs the fiber until it pauses or ends; returns true if it has ended. Fibers do not resume
  // others. No vector register keeps what it held.
  [[gnu::always_inline, gnu::target("general-regs-only")]] inline bool resume() {
    if (ended_) return true;
    void* shadow = nullptr;
    if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&shadow, stack(), kStack);
    switch_stack(&host_pointer_, stack_pointer_);
    if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(shadow, nullptr, nullptr);
    return ended_;
  }
  // Called by the running fiber: returns to whoever resumed it.
  [[gnu::noinline, gnu::target("general-regs-only")]] void pause();

 private:
  static constexpr size_t kPage = 4096, kStack = 256 << 10;  // only used pages are touched

  static void enter(Fiber* fiber);
  [[gnu::noinline, gnu::target("general-regs-only")]] void end();
  [[gnu::always_inline, gnu::target("general-regs-only")]] std::byte* stack() const { return memory_ + kPage; }

  std::byte* memory_ = nullptr;  // a guard page, then the stack
  void* stack_pointer_ = nullptr;
  void* host_pointer_ = nullptr;
  void* host_shadow_ = nullptr;  // ASan's bookkeeping for the stack of the resuming code
  const void* host_stack_ = nullptr;
  size_t host_stack_bytes_ = 0;
  void (*work_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
};

}  // namespace trireme::emulation
