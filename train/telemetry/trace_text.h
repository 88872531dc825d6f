// Traces of steps as text: the events of Chrome's trace format, which ui.perfetto.dev opens.
#pragma once

#include <string>
#include <vector>

#include "kernels/device.h"

namespace trireme {

struct RankTrace {
  int64_t rank = 0;
  std::string described{};  // "rank 5 | dp 1 pp 0 tp 1"
  std::vector<LaneTrace> lanes{};
};

// One event a line, with commas between. A rank is a process and a lane is a thread; arrows join the sends and receives of two
// ranks that were traced from the same step on. Times are microseconds since `zero`, in seconds since 1970.
std::string trace_events(const RankTrace& trace, double zero);
// The whole file, from the texts of all ranks.
std::string trace_text(const std::vector<std::string>& ranks);

}  // namespace trireme
