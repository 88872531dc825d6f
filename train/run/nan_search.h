// Finds the origin of numbers that are not finite: rank, layer and tensor.
#pragma once

#include <string>

#include "train/step/step.h"

namespace trireme {

// All ranks look through their state, and computing the batch again, without an update, at the residual stream after every part
// of the model, the loss, and their own gradients before they are summed: on rank 0 the first that is not finite, as
// "rank 1 | dp 1 pp 0 tp 0: microbatch 1: the gradient of layers.3.mlp.up"; elsewhere "". `step`, counted from 0, is the last one
// that was begun. Takes some steps' time.
std::string find_not_finite(TrainState& run, const Batch& batch, int64_t step);

}  // namespace trireme
