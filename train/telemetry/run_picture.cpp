#include "train/telemetry/run_picture.h"

#include <iterator>

namespace trireme {

std::string_view name_of(RunState state) {
  switch (state) {
    case RunState::running:
      return "running";
    case RunState::silent:
      return "silent";
    case RunState::finished:
      return "finished";
    case RunState::stopped:
      return "stopped";
    case RunState::failed:
      return "failed";
  }
  return "";
}

double RunPicture::goodput() const {
  const double end = exit.time > 0 && state != RunState::running && state != RunState::silent ? exit.time : now;
  if (starts.empty() || starts.front().time <= 0 || end <= starts.front().time) return StepRecord::kUnknown;
  return RunStarts{.first = starts.front().time, .count = std::ssize(starts)}.goodput(history.step_seconds, end);
}

}  // namespace trireme
