#include "kernels/cpu_queue.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

namespace trireme {

class CpuQueue::Ring {
 public:
  Ring() : thread_([this] { execute(); }) {}
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  uint64_t push(const void* work, size_t bytes, void (*call)(std::byte*));
  uint64_t pushed() const;
  void wait(uint64_t ticket);

  std::atomic<double> delay = 0;

 private:
  static constexpr size_t kSlots = 256;
  struct Slot {
    alignas(64) std::array<std::byte, kBytes> work;
    void (*call)(std::byte*);
  };
  void execute();

  std::array<Slot, kSlots> slots_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t pushed_ = 0, done_ = 0;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: starts once all other members exist
};

CpuQueue::Ring::~Ring() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t CpuQueue::Ring::push(const void* work, size_t bytes, void (*call)(std::byte*)) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pushed_ - done_ < kSlots; });
  Slot& slot = slots_[pushed_ % kSlots];
  std::memcpy(slot.work.data(), work, bytes);
  slot.call = call;
  ++pushed_;
  changed_.notify_all();
  return pushed_;
}

uint64_t CpuQueue::Ring::pushed() const {
  const std::lock_guard lock(mutex_);
  return pushed_;
}

void CpuQueue::Ring::wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
  if (error_) std::rethrow_exception(error_);
}

void CpuQueue::Ring::execute() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return pushed_ > done_ || closing_; });
    if (pushed_ == done_) return;
    Slot& slot = slots_[done_ % kSlots];
    const bool dropped = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!dropped) slot.call(slot.work.data());
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) error_ = error;
    ++done_;
    changed_.notify_all();
  }
}

CpuQueue::CpuQueue() : ring_(std::make_unique<Ring>()) {}
CpuQueue::~CpuQueue() = default;

uint64_t CpuQueue::push(const void* work, size_t bytes, void (*call)(std::byte*)) { return ring_->push(work, bytes, call); }
uint64_t CpuQueue::pushed() const { return ring_->pushed(); }
void CpuQueue::wait(uint64_t ticket) { ring_->wait(ticket); }

void CpuQueue::delay(double seconds) { ring_->delay = seconds; }
void CpuQueue::wait_as_tested() const {
  if (ring_->delay > 0) std::this_thread::sleep_for(std::chrono::duration<double>(ring_->delay.load()));
}

}  // namespace trireme
