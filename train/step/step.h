// One optimizer step, in the order in which it happens; the same code trains and, on Place::none, is walked by the plan.
#pragma once

#include "train/step/train_state.h"

namespace trireme {

struct StepResult {
  float loss;       // mean over the valid targets of the global batch
  float grad_norm;  // before clipping
  double lr;
  StepLimits limits{};
  bool updated = true;  // loss and norm pass the limits: on all ranks alike
};

// Rows [first, first + rows) of a batch, flat.
Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows);

// The one f32 of `x`, when the stream is through. 0 on Place::none.
float read_number(Stream& stream, const Tensor& x);

// Hands over step number `step`, counted from 0, which is an update if it passes `limits`. The host's batch is its own again. Of a
// step that was begun the result is asked for before the next but one begins, so that the host need not wait for a GPU between
// them.
void begin_step(TrainState& run, const Batch& batch, int64_t step, const StepLimits& limits = {});
// Waits for the step. On Place::none the result is zero.
StepResult end_step(TrainState& run, int64_t step);
// Both.
StepResult train_step(TrainState& run, const Batch& batch, int64_t step);
// Step number `step` again, without an update and without a result: all that the hooks see of it.
void rehearse_step(TrainState& run, const Batch& batch, int64_t step);

}  // namespace trireme
