// Compares the replicas of a model, which finds a processor or memory that fails silently by its state.
#pragma once

#include <string>

#include "train/step/step.h"

namespace trireme {

// Digests the state that is the same on several replicas: weights, and of several copies masters and moments. All ranks call it,
// with no step in flight. On all ranks "" or who differs from whom in which tensors; with three or more replicas, the ones that
// stand alone.
std::string compare_replicas(TrainState& run);

}  // namespace trireme
