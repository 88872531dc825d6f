// Check that a run fits into the memory of its machines, before any is allocated.
#pragma once

#include "train/run/placement.h"
#include "train/step/plan.h"

namespace trireme {

// ConfigError if this machine has less memory than its ranks need, with settings that make it fit or
// the size that does. All ranks call it.
void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world);

}  // namespace trireme
