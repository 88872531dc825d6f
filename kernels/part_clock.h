// PartClock: the time of one thread, by what it does.
//
// At each moment one part runs, so the parts add up to the whole. A PartSpan begins a part inside another, whose time pauses.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>

#include "base/clock.h"

namespace trireme {

class PartClock {
 public:
  struct Part {
    std::array<char, 12> name{};  // "forward"; of a wait, the axis along which other ranks are waited for
    bool waits = false;
    double seconds = 0;
  };

  // Begins anew with the part "other", on the calling thread. Calls from other threads do nothing.
  void restart() {
    owner_ = std::this_thread::get_id();
    for (Part& part : parts_) part.seconds = 0;
    now_ = 0, since_ = Clock::now();
    on_core_ = 0, used_ = thread_seconds();
  }
  // The parts so far; those of earlier times that have not run again have 0 seconds.
  std::span<const Part> parts() {
    turn_to(now_);
    return std::span(parts_).first(count_);
  }
  // Processor time since restart(), in seconds, without that of waits. Only for the owner.
  double on_core() {
    if (!parts_[now_].waits) count_core();
    return on_core_;
  }
  // Begins a part; returns the one that it interrupts, which resume() continues. Names of a 25th part and longer ones than
  // eleven letters count as "other".
  size_t begin(const char* name, bool waits) { return turn_to(find(name, waits)); }
  void resume(size_t part) { turn_to(part); }

 private:
  static constexpr size_t kMost = 24;

  size_t turn_to(size_t part) {
    if (std::this_thread::get_id() != owner_) return part;
    const auto now = Clock::now();
    parts_[now_].seconds += std::chrono::duration<double>(now - since_).count();
    const size_t before = now_;
    if (parts_[before].waits != parts_[part].waits) parts_[part].waits ? count_core() : skip_core();
    now_ = part, since_ = now;
    return before;
  }
  void count_core() {
    const double used = thread_seconds();
    on_core_ += used - used_;
    used_ = used;
  }
  void skip_core() { used_ = thread_seconds(); }
  size_t find(std::string_view name, bool waits) {
    for (size_t i = 0; i < count_; ++i)
      if (parts_[i].waits == waits && name == parts_[i].name.data()) return i;
    if (count_ == kMost || name.size() >= Part{}.name.size() || std::this_thread::get_id() != owner_) return 0;
    std::memcpy(parts_[count_].name.data(), name.data(), name.size());
    parts_[count_].waits = waits;
    return count_++;
  }

  std::array<Part, kMost> parts_{Part{.name = {"other"}}};
  size_t count_ = 1, now_ = 0;
  double on_core_ = 0, used_ = 0;  // used: the thread's processor time when the work since the last wait began
  Clock::time_point since_{};
  std::thread::id owner_{};
};

// A part during the life of the object; nothing without a clock.
class PartSpan {
 public:
  PartSpan(PartClock* clock, const char* name, bool waits = false)
      : clock_(clock), before_(clock != nullptr ? clock->begin(name, waits) : 0) {}
  ~PartSpan() {
    if (clock_ != nullptr) clock_->resume(before_);
  }
  PartSpan(const PartSpan&) = delete;
  PartSpan& operator=(const PartSpan&) = delete;

 private:
  PartClock* clock_;
  size_t before_;
};

}  // namespace trireme
