// One optimizer step: forward, backward, reduction of gradients, update. The plan walks the same
// code on Place::none.
#pragma once

#include "train/step/train_state.h"

namespace trireme {

struct StepResult {
  float loss;            // mean over the valid targets of the global batch
  SquaredSum squares{};  // of the gradients, before clipping
  double grad_norm;      // an f32's value, unless f32 cannot hold the sum of squares
  double lr;
  StepLimits limits{};
  bool updated = true;  // loss and norm are within the limits; the same on all ranks
};

// Returns rows [first, first + rows) of a batch, flattened.
Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows);

// Waits for the stream and returns the only element of `x`, an f32; 0 on Place::none.
float read_number(Stream& stream, const Tensor& x);

// Enqueues step number `step`, counted from 0; weights are updated only if loss and gradient norm
// are within `limits`. The caller may reuse the batch's memory afterwards. Call end_step(n) before
// begin_step(n + 2): at most two steps are in flight, so the host never stalls the GPU.
void begin_step(TrainState& run, const Batch& batch, int64_t step, const StepLimits& limits = {});
// Waits for the step and returns its result; zeros on Place::none.
StepResult end_step(TrainState& run, int64_t step);
// Calls begin_step() and end_step().
StepResult train_step(TrainState& run, const Batch& batch, int64_t step);
// Repeats step number `step` without an update, so that the hooks see its tensors. Weights that are rounded stochastically are then
// those after that step. With the same weights, the result has the same bits each time.
StepResult rehearse_step(TrainState& run, const Batch& batch, int64_t step);

}  // namespace trireme
