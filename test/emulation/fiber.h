// A Fiber runs a function on its own stack until it pauses or ends; for x86-64. Each CUDA thread of
// the emulation is one.
#pragma once

#include <cstddef>

namespace trireme::emulation {

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
  // others.
  bool resume();
  // Called by the running fiber: returns to whoever resumed it.
  void pause();

 private:
  static void enter(Fiber* fiber);
  void leave(bool forever);

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
