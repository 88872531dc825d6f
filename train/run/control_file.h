// ControlFile: what people ask of a running run, through RUN/control.
//
//   echo profile 3 > RUN/control    traces the next three steps
//   echo evaluate > RUN/control     evaluates after the next step
#pragma once

#include "base/clock.h"
#include "train/run/session.h"

namespace trireme {

struct Requests {
  int64_t profile = 0;  // steps to trace
  bool evaluate = false;
};

class ControlFile {
 public:
  // `session` outlives it.
  explicit ControlFile(const Session& session) : session_(session) {}

  // On rank 0, and once for each request: removes the file. Looks at most once a second. Notes what it does not understand.
  Requests take();

 private:
  const Session& session_;
  Clock::time_point looked_{};
};

}  // namespace trireme
