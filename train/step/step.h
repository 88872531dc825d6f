// One optimizer step, in the order in which it happens; the same code trains and, on Place::none, is walked by the plan.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "data/loader/loader.h"
#include "kernels/graph.h"
#include "kernels/staging_buffer.h"
#include "parallel/buckets.h"
#include "parallel/gpu_group.h"
#include "parallel/mesh.h"
#include "train/step/optimizer.h"
#include "train/step/pipeline.h"
#include "train/step/unit_traffic.h"

namespace trireme {

// All that a step works on. Built in this order.
struct TrainState {
  // All ranks of the mesh build one together. What it is given outlives it.
  TrainState(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes);

  // The schedule of a step of this many microbatches of this replica.
  const std::vector<Action>& actions(int64_t microbatches);

  const RunConfig& config;
  const Mesh& mesh;
  Device& device;
  Arenas arenas;
  std::vector<std::unique_ptr<KnownMemory>> known;  // of the arenas, to the groups whose collectives work on them
  Buckets buckets;
  Comm sharing;  // of the tp group: ranks with the same key-value head
  Stage stage;
  UnitTraffic traffic;
  Pipeline pipeline;
  Optimizer optimizer;
  // The batch where the step is computed: itself on Place::cpu, else a copy, on its way.
  Batch on_device(const Batch& batch);

  Tensor loss;       // [1] f32: the step's mean loss
  Tensor loss_tree;  // [levels, 1] f32, with invariant numerics: `loss` is then of one microbatch at first

  // For the Stage: of passes that leave no complete gradients, and of backwards that do, of microbatch number `microbatch`.
  UnitHooks passing, completing;
  std::function<void(const Action&)> after{};  // told of each action that was handed over
  int64_t step = 0;                            // that was begun last, counted from 0
  int64_t microbatch = 0;
  bool last = false;  // of the step

  StepLimits& limits(int64_t step) { return limits_[static_cast<size_t>(step % 2)]; }
  // Of the two steps that may be on their way: where the loss and the squared norm of the gradients arrive.
  StagingBuffer& results(int64_t step) { return *results_[static_cast<size_t>(step % 2)]; }
  // Where the next step is replayed as a whole, or is to be recorded: of batches with this many valid targets. nullptr: it is not.
  Graph* graph(int64_t valid);

 private:
  void complete(size_t unit);

  std::map<int64_t, std::vector<Action>> actions_;
  std::optional<Buffer> batch_;  // on a GPU: four tensors of a replica's ids
  std::array<std::optional<StagingBuffer>, 2> batches_, results_;
  std::array<StepLimits, 2> limits_;
  int64_t batches_sent_ = 0;
  std::map<int64_t, Graph> graphs_;  // by valid targets
  bool stepped_ = false;
  Event loss_cleared_;  // the loss of the microbatch before has entered the tree
};

// Microbatches of one replica in a step, and the shape of the pipeline that they pass.
PipelineShape pipeline_shape(const RunConfig& config, int64_t replicas);

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
