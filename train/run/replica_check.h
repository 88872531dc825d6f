// Whether the replicas of a model still hold the same: a processor or memory that errs in silence is found by its state.
#pragma once

#include <string>

#include "train/step/step.h"

namespace trireme {

// Digests what every replica holds alike: weights, and without parallel.zero masters and moments. All ranks call it, with no step
// on its way. On all ranks "" or who differs from whom in which tensors; with three or more replicas, the ones that stand alone.
std::string compare_replicas(TrainState& run);

}  // namespace trireme
