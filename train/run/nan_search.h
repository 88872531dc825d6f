// Finds the origin of numbers that are not finite: rank, layer and tensor.
#pragma once

#include <string>

#include "train/step/step.h"

namespace trireme {

struct NanSearch {
  std::string found;   // on rank 0 the first that is not finite; "" elsewhere, or if there is none
  StepResult results;  // of the step computed again
};

// All ranks look through their state, and computing the batch again, without an update, at the residual stream after every part
// of the model, the loss, and their own gradients before they are summed. The first that is not finite is named as
// "rank 1 | dp 1 pp 0 tp 0: microbatch 1: the gradient of layers.3.mlp.up". `step` is counted from 0. Takes some steps' time.
NanSearch find_not_finite(TrainState& run, const Batch& batch, int64_t step);

}  // namespace trireme
