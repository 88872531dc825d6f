// StepProfile: traces of some steps of all ranks, in RUN/trace-FIRST-LAST.json. On CPUs only.
//
// train.profile names the steps. While a run runs, `echo profile 3 > RUN/control` traces the next three.
#pragma once

#include <optional>

#include "base/clock.h"
#include "train/run/session.h"

namespace trireme {

class StepProfile {
 public:
  explicit StepProfile(Session& session) : session_(session) {}

  // All ranks, before step number `step` begins and after it has ended.
  void begin(int64_t step);
  void end(int64_t step);
  bool tracing() const { return now_.has_value(); }

  // On rank 0: the steps that RUN/control asks for, once; 0 if none. Looks at most once a second.
  int64_t asked();
  // All ranks: traces so many steps from `step` on.
  void trace(int64_t step, int64_t steps);

 private:
  void write();

  Session& session_;
  std::optional<StepRange> now_{};  // being traced
  int64_t next_ = 0, last_ = 0;     // asked for while the run runs
  Clock::time_point looked_{};
};

}  // namespace trireme
