// Heap: knows which simulated process owns each block that `new` has given out, so that a process
// which is killed leaves nothing.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

namespace trireme::simulation {

// Small blocks come from pages and return to lists by size; a large one is an allocation of its own.
class Heap {
 public:
  struct Free {
    Free* next;
  };
  // Start of a large block, and a link of its owner's list.
  struct alignas(16) Large {
    Large *before = this, *after = this;
  };

  Heap() = default;
  ~Heap() { clear(); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  void clear();  // frees every block
  void* take(size_t bytes);
  void give_back(void* memory, size_t bytes) noexcept;

 private:
  static constexpr size_t kStep = 16, kLargestSmall = 1024;
  void* take_small(size_t bytes);

  std::array<Free*, kLargestSmall / kStep + 1> free_{};
  std::byte *next_ = nullptr, *end_ = nullptr;  // of the newest page
  std::byte* pages_ = nullptr;                  // each begins with the address of the one before
  Large large_;
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
