// A Fiber runs a function on a stack of its own until it pauses or ends; for x86-64. Each CUDA thread of the emulation is one.
#pragma once

#include <cstddef>

namespace trireme::emulation {

// Under the address sanitizer: nobody may touch these bytes from here on, or may again. Else nothing, and false.
bool forbid(const void* memory, size_t bytes);
bool allow(const void* memory, size_t bytes);

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The function to run, with its argument, from the next resume() on; what ran before is forgotten where it stands. It throws
  // nothing.
  void begin(void (*work)(void*), void* argument);
  // Runs the fiber until it pauses or ends; returns true if it has ended. Fibers do not resume
  // others.
  bool resume();
  // Called by the running fiber: returns to whoever resumed it.
  void pause();

 private:
  static void enter(Fiber* fiber);
  void leave(bool forever);

  std::byte* memory_ = nullptr;  // a page that none may touch, then the stack
  void* stack_pointer_ = nullptr;
  void* host_pointer_ = nullptr;
  void* host_shadow_ = nullptr;  // ASan's bookkeeping of whoever resumed
  const void* host_stack_ = nullptr;
  size_t host_stack_bytes_ = 0;
  void (*work_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
};

}  // namespace trireme::emulation
