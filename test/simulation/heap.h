// Heap: knows which simulated process owns each block that `new` has given out, so that a process
// which is killed leaves nothing.
#pragma once

#include <utility>

namespace trireme::simulation {

// Start of an allocation, and a link of its owner's list.
struct alignas(16) Block {
  Block *before = this, *after = this;
};

class Heap {
 public:
  Heap() = default;
  ~Heap() { clear(); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  void clear();  // frees every block
  Block& blocks() { return blocks_; }

 private:
  Block blocks_;
};

// The owner of what is allocated from now on; nullptr: nobody. Returns the one before.
Heap* own_by(Heap* heap);

// Allocations in a scope belong to the simulation and not to the process that called it.
class Unowned {
 public:
  Unowned() : before_(own_by(nullptr)) {}
  ~Unowned() { own_by(before_); }
  Unowned(const Unowned&) = delete;
  Unowned& operator=(const Unowned&) = delete;

 private:
  Heap* before_;
};

}  // namespace trireme::simulation
