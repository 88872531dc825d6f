// CpuQueue: a thread that executes what it is handed, one after the other. Behind the communication lane of Place::cpu, so that
// collectives progress while the compute lane computes; a GPU has streams for that.
//
// Work is copied into a ring of fixed slots: nothing is allocated after the start. What a piece of work throws is kept and thrown
// to whoever waits next; work behind it is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace trireme {

class CpuQueue {
 public:
  CpuQueue();
  ~CpuQueue();  // after what was handed over is done
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  // Hands over a copy of `work`; waits while the ring is full. Returns its ticket: tickets count up from 1.
  template <class Work>
  uint64_t push(const Work& work) {
    static_assert(sizeof(Work) <= kBytes && std::is_trivially_copyable_v<Work>, "a lane's work is plain and small");
    return push(&work, sizeof work, [](std::byte* at) { (*std::launder(reinterpret_cast<Work*>(at)))(); });
  }
  uint64_t pushed() const;  // the last ticket
  // Until this ticket's work is done. Throws what the lane's work has thrown.
  void wait(uint64_t ticket);
  // For tests of overlap: how much longer each collective takes from here on; they call wait_as_tested().
  void delay(double seconds);
  void wait_as_tested() const;

 private:
  static constexpr size_t kBytes = 768;
  class Ring;  // in lane.cpp: every file that runs an op reads this one
  uint64_t push(const void* work, size_t bytes, void (*call)(std::byte*));

  std::unique_ptr<Ring> ring_;
};

}  // namespace trireme
