// ProcessorMeter: how much of a node's silence counts against each of its ranks. Time in which a rank
// was ready to run but had no core does not count.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "parallel/journal.h"
#include "train/health/thread_times.h"

namespace trireme {

class ProcessorMeter {
 public:
  using Read = std::function<std::vector<ThreadTimes>(int32_t process)>;
  explicit ProcessorMeter(Read read = threads_of) : read_(std::move(read)) {}

  void restart();  // some rank made progress
  struct Span {
    double seconds;  // since the last call, or since the progress
    double counted;  // at most these of them count, since the caller was not always there
    double limit;    // of silence
  };
  // Adds the span to what each rank has had, and writes that into the reports.
  void measure(const Span& span, std::vector<RankReport>& ranks);

 private:
  struct Rank {
    std::map<int32_t, ThreadTimes> first, last;  // by thread: at the first measurement and at the latest
    ProcessorShare share;
    double rate = 0;  // processor time per second that counted, of late
  };
  static void add(Rank& rank, const Span& span, const RankReport& report, const std::vector<ThreadTimes>& threads);

  Read read_;
  std::map<int64_t, Rank> ranks_;
};

}  // namespace trireme
