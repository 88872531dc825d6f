// Lane: a thread that executes what it is handed, one after the other. Behind the communication lane of Place::cpu, so that
// collectives progress while the compute lane computes; a GPU has streams for that.
//
// Work is copied into a ring of fixed slots: nothing is allocated after the start. What a piece of work throws is kept and thrown
// to whoever waits next; work behind it is dropped.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace trireme {

class Lane {
 public:
  Lane();
  ~Lane();  // after what was handed over is done
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Hands over a copy of `work`; waits while the ring is full. Returns its ticket: tickets count up from 1.
  template <class Work>
  uint64_t push(const Work& work) {
    static_assert(sizeof(Work) <= kBytes && std::is_trivially_copyable_v<Work>, "a lane's work is plain and small");
    std::unique_lock lock(mutex_);
    Slot& slot = free_slot(lock);
    std::memcpy(slot.work.data(), &work, sizeof work);
    slot.call = [](std::byte* at) { (*std::launder(reinterpret_cast<Work*>(at)))(); };
    return handed_over();
  }
  uint64_t pushed() const;  // the last ticket
  // Until this ticket's work is done. Throws what the lane's work has thrown.
  void wait(uint64_t ticket);
  // For tests of overlap: how much longer each collective takes from here on; they call dawdle().
  void delay(double seconds) { delay_ = seconds; }
  void dawdle() const {
    if (delay_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(delay_));
  }

 private:
  static constexpr size_t kBytes = 768, kSlots = 256;
  struct Slot {
    alignas(64) std::array<std::byte, kBytes> work;
    void (*call)(std::byte*);
  };
  Slot& free_slot(std::unique_lock<std::mutex>& lock);
  uint64_t handed_over();
  void execute();

  std::unique_ptr<std::array<Slot, kSlots>> slots_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t pushed_ = 0, done_ = 0;
  std::atomic<double> delay_ = 0;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it starts when all else stands
};

}  // namespace trireme
