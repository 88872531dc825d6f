// Checks before a run allocates anything: that it fits into the memory of its machines, and can be saved.
#pragma once

#include "train/run/placement.h"
#include "train/step/plan.h"

namespace trireme {

// ConfigError if this machine has less memory than its ranks need, with settings that make it fit or
// the size that does. All ranks call it.
void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world);

// ConfigError if the run's checkpoints would be too large to be read again. All ranks call it.
void require_checkpoint(const Plan& plan, const Comm& all);

}  // namespace trireme
