// Trace: what a lane of a device has done, op by op, while steps are profiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace trireme {

struct TraceEvent {
  enum class Kind { op, wait, send, receive, part };
  const char* name = "";  // outlives the trace
  Kind kind = Kind::op;
  Clock::time_point begin{}, end{};
  double bytes = 0, flops = 0;     // as a Tally counts them; of a collective the bytes that the rank sends
  std::array<char, 8> axis{};      // of the mesh, of collectives, messages and waits
  int32_t peer = -1, channel = 0;  // of a message: the rank of the world at its other end
  int64_t number = -1;             // of a part: which microbatch or step

  void along(std::string_view name_of_axis) {
    std::copy_n(name_of_axis.begin(), std::min(name_of_axis.size(), axis.size() - 1), axis.begin());
  }
};

// The events of one lane, which one thread adds, in the order of their ends.
class TraceLane {
 public:
  static constexpr size_t kMost = 1 << 17;

  void restart() {
    events_.clear();
    events_.reserve(kMost);
    dropped_ = 0;
  }
  void add(TraceEvent event) {
    if (events_.size() == kMost) return void(++dropped_);
    event.end = Clock::now();
    events_.push_back(event);
  }
  const std::vector<TraceEvent>& events() const { return events_; }
  int64_t dropped() const { return dropped_; }  // beyond kMost

 private:
  std::vector<TraceEvent> events_;
  int64_t dropped_ = 0;
};

// Several ops, from here to the end of the scope; nothing without a trace.
class TraceSpan {
 public:
  TraceSpan(TraceLane* trace, const char* name, int64_t number) : trace_(trace) {
    if (trace_ != nullptr) event_ = {.name = name, .kind = TraceEvent::Kind::part, .begin = Clock::now(), .number = number};
  }
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceLane* trace_;
  TraceEvent event_{};
};

}  // namespace trireme
