// StepProfile: traces of some steps of all ranks, in RUN/trace-FIRST-LAST.json. On CPUs only.
//
// train.profile names the steps, or a request in RUN/control: see control_file.h.
#pragma once

#include <optional>

#include "train/run/session.h"

namespace trireme {

class StepProfile {
 public:
  static constexpr int64_t kMostSteps = 1000;  // of a trace

  explicit StepProfile(Session& session) : session_(session) {}

  // All ranks, before step number `step` begins and after it has ended.
  void begin(int64_t step);
  void end(int64_t step);
  bool tracing() const { return now_.has_value(); }

  // All ranks: traces so many steps from `step` on.
  void trace(int64_t step, int64_t steps);

 private:
  void write();

  Session& session_;
  std::optional<StepRange> now_{};  // being traced
  int64_t next_ = 0, last_ = 0;     // asked for while the run runs
};

}  // namespace trireme
