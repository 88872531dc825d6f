// CpuQueue: a thread that executes work in order. It implements the communication lane of
// Place::cpu, so that collectives progress while the compute lane computes; a GPU has streams for
// that.
//
// Work is copied into a ring of fixed slots: nothing is allocated after the start. An exception of
// a piece of work is kept and thrown to the next waiter; later work is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace trireme {

class CpuQueue {
 public:
  CpuQueue();
  ~CpuQueue();  // waits for the work in the queue
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  // Enqueues a copy of `work`; blocks while the ring is full. Returns its ticket: tickets count up
  // from 1.
  template <class Work>
  uint64_t push(const Work& work) {
    static_assert(sizeof(Work) <= kBytes && std::is_trivially_copyable_v<Work>, "a lane's work is plain and small");
    return push(&work, sizeof work, [](std::byte* at) { (*std::launder(reinterpret_cast<Work*>(at)))(); });
  }
  uint64_t pushed() const;  // the last ticket
  // The axis of the mesh along which the last collective in the queue runs; nullptr: none. Called by the pushing thread.
  void carry(const char* axis) { axis_ = axis; }
  const char* carried() const { return axis_; }
  // Waits until this ticket's work is done. Throws what the lane's work has thrown.
  void wait(uint64_t ticket);
  // For tests of overlap: prolongs each later collective by so many seconds, by way of
  // wait_as_tested().
  void delay(double seconds);
  void wait_as_tested() const;

 private:
  static constexpr size_t kBytes = 768;
  class Ring;  // defined in the .cpp: every file that runs an op includes this header
  uint64_t push(const void* work, size_t bytes, void (*call)(std::byte*));

  std::unique_ptr<Ring> ring_;
  const char* axis_ = nullptr;
};

}  // namespace trireme
