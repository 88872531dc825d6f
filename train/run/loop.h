// The loop of a run: step, log, evaluate, save, until the last step or a signal.
#pragma once

#include "train/run/session.h"

namespace trireme {

// Continues after `step` finished steps, which it counts. Returns ExitCode::done or ::stopped. NumericsError when a bad step is to
// end the run, or after ten steps in a row that are not finite.
ExitCode loop(Session& session, int64_t& step);

}  // namespace trireme
