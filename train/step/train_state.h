// TrainState: all that a training step works on: the model's slice of this rank, its optimizer, and who moves what between ranks.
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

// Built in this order.
struct TrainState {
  // All ranks of the mesh build one together. What it is given outlives it.
  TrainState(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes);

  // The schedule of a step of this many microbatches of this replica.
  const std::vector<Action>& actions(int64_t microbatches);

  const RunConfig& config;
  const Mesh& mesh;
  Device& device;
  Arenas arenas;
  Comm sharing;  // of the tp group: ranks with the same key-value head
  Stage stage;
  ReplicaSync sync;
  Pipeline pipeline;
  Optimizer optimizer;
  StepLauncher launcher;

  Tensor loss;       // [1] f32: the step's mean loss
  Tensor loss_tree;  // [levels, 1] f32, with invariant numerics: `loss` is then of one microbatch at first

  UnitHooks hooks;  // of the Stage: units' weights arrive, their gradients leave, and with the head's the loss
  std::function<void(const Action&)> after{};  // told of each action that was handed over
  int64_t step = 0;                            // that was begun last, counted from 0

 private:
  void complete(size_t unit, const Microbatch& batch);

  std::map<int64_t, std::vector<Action>> actions_;
  Event loss_cleared_;  // the loss of the microbatch before has entered the tree
};

// Microbatches of one replica in a step, and the shape of the pipeline that they pass.
PipelineShape pipeline_shape(const RunConfig& config, int64_t replicas);

}  // namespace trireme
