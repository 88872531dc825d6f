// Whether a run fits into the memory of its machines, asked before anything is taken.
#pragma once

#include "train/run/placement.h"
#include "train/step/plan.h"

namespace trireme {

// ConfigError, with what makes it smaller, where this machine has less than its ranks need. All ranks call it.
void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world);

}  // namespace trireme
