// One optimizer step, in the order in which it happens; the same code trains and, on Place::none, is walked by the plan.
#pragma once

#include "data/loader.h"
#include "parallel/buckets.h"
#include "parallel/mesh.h"
#include "train/optimizer.h"

namespace trireme {

// All that a step works on. Built in this order.
struct Run {
  Run(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes);

  const RunConfig& config;
  const Mesh& mesh;
  Device& device;
  Arenas arenas;
  Buckets buckets;
  Stage stage;
  Optimizer optimizer;
  Tensor loss;  // [1] f32: the step's mean loss
};

struct StepResult {
  float loss;       // mean over the valid targets of the global batch
  float grad_norm;  // before clipping
  double lr;
};

// Rows [first, first + rows) of a batch, flat.
Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows);

// The Stage's forward pass, once the weights of each unit have arrived.
void forward(Run& run, const Microbatch& batch);

// Step number `step`, counted from 0. On Place::none the result is zero.
StepResult train_step(Run& run, const Batch& batch, int64_t step);

}  // namespace trireme
