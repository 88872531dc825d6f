// TrainState: everything that a training step works on. It holds this rank's slice of the model,
// the optimizer, and the objects that communicate with other ranks.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "parallel/mesh.h"
#include "train/step/optimizer.h"
#include "train/step/pipeline.h"
#include "train/step/replica_sync.h"
#include "train/step/step_launcher.h"

namespace trireme {

// Members are constructed in the order of their declaration.
struct TrainState {
  // Collective over the mesh. The arguments must outlive the state.
  TrainState(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes);

  // Returns the schedule of a step with this many microbatches per replica.
  const std::vector<Action>& actions(int64_t microbatches);

  const RunConfig& config;
  const Mesh& mesh;
  Device& device;
  Arenas arenas;
  const Comm& sharing;  // ranks of the tp group with the same key-value head
  Stage stage;
  ReplicaSync sync;
  Pipeline pipeline;
  Optimizer optimizer;
  StepLauncher launcher;

  Tensor loss;         // [1] f32: the step's mean loss
  Tensor loss_factor;  // [1] f32: 1 / (the batch's valid targets)
  Tensor loss_sum;     // [1] f32: of all copies, only with parallel.local_steps
  Tensor loss_tree;    // [levels, 1] f32: sums of the microbatches' losses, only with invariant numerics

  UnitHooks hooks;                             // receive a unit's weights, send its gradients; with the head's the loss
  std::function<void(const Action&)> after{};  // called after each action was enqueued
  int64_t step = 0;                            // begun last, counted from 0

 private:
  void complete(size_t unit, const Microbatch& batch);

  std::map<int64_t, std::vector<Action>> actions_;
  Event loss_cleared_;  // the tree has the previous microbatch's loss, and `loss` is 0
};

// Returns the shape of the pipeline, with the number of microbatches per replica and step.
PipelineShape pipeline_shape(const RunConfig& config, int64_t replicas);
// Half-layers of each chunk of the pipeline, as parallel.layers says or by their cost.
std::vector<int64_t> half_layers_of_chunks(const RunConfig& config, const PipelineShape& pipeline);

}  // namespace trireme
