// One optimizer step, in the order in which it happens; the same code trains and, on Place::none, is walked by the plan.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "parallel/buckets.h"
#include "parallel/mesh.h"
#include "train/optimizer.h"
#include "train/pipeline.h"
#include "train/unit_traffic.h"

namespace trireme {

// All that a step works on. Built in this order.
struct Run {
  // All ranks of the mesh build one together. What it is given outlives it.
  Run(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes);

  // The schedule of a step of this many microbatches of this replica.
  const std::vector<Action>& actions(int64_t microbatches);

  const RunConfig& config;
  const Mesh& mesh;
  Device& device;
  Arenas arenas;
  Buckets buckets;
  Comm sharing;  // of the tp group: ranks with the same key-value head
  Stage stage;
  UnitTraffic traffic;
  Pipeline pipeline;
  Optimizer optimizer;
  // The batch where the step is computed: itself on Place::cpu, else a copy, for which the host's stays as it is until the compute
  // lane is through.
  Batch on_device(const Batch& batch);

  Tensor loss;       // [1] f32: the step's mean loss
  Tensor loss_tree;  // [levels, 1] f32, with invariant numerics: `loss` is then of one microbatch at first

  // For the Stage: of passes that leave no complete gradients, and of backwards that do, of microbatch number `microbatch`.
  UnitHooks passing, completing;
  int64_t microbatch = 0;
  bool last = false;  // of the step

 private:
  void complete(size_t unit);

  std::map<int64_t, std::vector<Action>> actions_;
  std::optional<Buffer> batch_;  // on a GPU: four tensors of a replica's ids
  Event loss_cleared_;           // the loss of the microbatch before has entered the tree
};

// Microbatches of one replica in a step, and the shape of the pipeline that they pass.
PipelineShape pipeline_shape(const RunConfig& config, int64_t replicas);

struct StepResult {
  float loss;       // mean over the valid targets of the global batch
  float grad_norm;  // before clipping
  double lr;
};

// Rows [first, first + rows) of a batch, flat.
Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows);

// The one f32 of `x`, when the stream is through. 0 on Place::none.
float read_number(Stream& stream, const Tensor& x);

// Step number `step`, counted from 0. On Place::none the result is zero.
StepResult train_step(Run& run, const Batch& batch, int64_t step);

}  // namespace trireme
