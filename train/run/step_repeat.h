// Computes a step several times. A fault of the hardware gives other bits for equal inputs; a model that diverged does not.
#pragma once

#include <string>

#include "train/step/step.h"

namespace trireme {

// Makes the weights those that step `step`, counted from 0, began with, if no update has come since: stochastic rounding draws them
// anew at each step.
void go_back_to_weights_of(TrainState& run, int64_t step);

// True if two results of a step have the same bits, NaN among them.
bool same_bits(const StepResult& a, const StepResult& b);

// All ranks compute the batch twice, without an update, and compare the bits of their loss and of their own gradients before these
// are summed. On all ranks "rank 1 | dp 1 pp 0 tp 0 on node7", the ranks that differ from themselves; "" if none does. Leaves the
// weights of step `step`.
std::string ranks_that_vary(TrainState& run, const Batch& batch, int64_t step);

// Words on a difference between ranks whose numbers must be equal, with the result of ranks_that_vary().
std::string fault_of(const std::string& ranks);

}  // namespace trireme
