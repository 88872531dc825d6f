#include "kernels/lane.h"

namespace trireme {

Lane::Lane() : slots_(std::make_unique<std::array<Slot, kSlots>>()), thread_([this] { execute(); }) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Lane::Slot& Lane::free_slot(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return pushed_ - done_ < kSlots; });
  return (*slots_)[pushed_ % kSlots];
}

uint64_t Lane::handed_over() {
  ++pushed_;
  changed_.notify_all();
  return pushed_;
}

uint64_t Lane::pushed() const {
  const std::lock_guard lock(mutex_);
  return pushed_;
}

void Lane::wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
  if (error_) std::rethrow_exception(error_);
}

void Lane::execute() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return pushed_ > done_ || closing_; });
    if (pushed_ == done_) return;
    Slot& slot = (*slots_)[done_ % kSlots];
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

}  // namespace trireme
