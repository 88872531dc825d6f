#include "train/step/step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/copy.h"
#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "train/step/lr.h"

namespace trireme {

namespace {

int64_t levels_of(int64_t count) {
  int64_t levels = 1;
  while ((count >> levels) > 0) ++levels;
  return levels;
}

// Ranks of the tp group whose shards have the same key-value head.
int64_t sharing_ranks(const RunConfig& config, const Mesh& mesh) {
  const int64_t shards = config.parallel.shards(), mine = shards / mesh.tp().size();
  return std::max<int64_t>(1, shards / config.model.kv_heads / mine);
}

// Passes of the last piece of a stage that wait for their backward at a time.
int64_t loss_slots_in(const std::vector<Action>& actions, int64_t chunk) {
  int64_t now = 0, most = 1;
  for (const Action& a : actions) {
    if (a.chunk != chunk) continue;
    if (a.kind == ActionKind::forward) most = std::max(most, ++now);
    if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight) --now;
  }
  return most;
}

StageShape stage_shape(const RunConfig& config, const Mesh& mesh, const Buckets& buckets, const Comm& sharing) {
  const ParallelConfig& p = config.parallel;
  const PipelineShape pipeline = pipeline_shape(config, mesh.replicas());
  const std::vector<Action> actions = make_schedule(p.stage_schedule(), pipeline, mesh.pp().rank());
  const int64_t mine = p.shards() / mesh.tp().size();
  const bool parts = buckets.parts() > 1, fp8 = config.kernels.matmul == MatmulDtype::fp8;
  return {.rows = config.microbatch_rows(mesh.replicas()),
          .context = config.model.context,
          .dtype = dtype_of(config.kernels.dtype),
          .logits = config.kernels.logits_dtype(),
          .fused_products = config.kernels.fused_products(),
          .fp8_begin = fp8 ? config.kernels.bf16_layers : 0,
          .fp8_end = fp8 ? config.model.layers - config.kernels.bf16_layers : 0,
          .holding = {.parts = buckets.parts(),
                      .part = buckets.part(),
                      .weights = p.zero < 3 || !parts,
                      .gradients = !p.exact() && (p.zero < 2 || !parts),
                      .tree_levels = p.exact() ? levels_of(pipeline.microbatches * mesh.replicas()) : 0},
          .pieces = slice_of(config.model.layers, pipeline.stages, pipeline.chunks, mesh.pp().rank()),
          .slots = slots_of(actions),
          .loss_slots = loss_slots_in(actions, pipeline.chunks - 1),
          .halves = p.stage_schedule() == Schedule::zero_bubble,
          .recompute = config.train.recompute,
          .tensor = {.count = p.shards(),
                     .first = mesh.tp().rank() * mine,
                     .mine = mine,
                     .ranks = &mesh.tp(),
                     .sharing = &sharing,
                     .sequence = p.sequence,
                     .exact = p.exact()}};
}

}  // namespace

PipelineShape pipeline_shape(const RunConfig& config, int64_t replicas) {
  return {.stages = config.parallel.pp,
          .microbatches = config.train.batch / replicas / config.microbatch_rows(replicas),
          .chunks = config.parallel.stage_chunks()};
}

TrainState::TrainState(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes)
    : config(config),
      mesh(mesh),
      device(device),
      arenas(device, sizes, config.train.offload == Offload::optimizer ? Memory::pinned : Memory::own),
      buckets(mesh.dp(), device, config.parallel.zero, config.parallel.reduce == ReduceDtype::bf16),
      sharing(mesh.neighbours(sharing_ranks(config, mesh))),
      stage(config.model, stage_shape(config, mesh, buckets, sharing), arenas, device.compute()),
      traffic(mesh, device, stage, buckets),
      pipeline(mesh.pp(), device, stage),
      optimizer(config.train, mesh, stage, traffic, arenas),
      loss(arenas.temporaries.take(Dtype::f32, {1})) {
  if (device.place() == Place::cuda && mesh.dp().size() > 1)
    for (const Arena* arena : {&arenas.gradients, &arenas.weights}) {
      const Tensor all = arena->flat(Dtype::f32);
      known.push_back(std::make_unique<KnownMemory>(mesh.dp().gpus(), static_cast<std::byte*>(all.data()), all.bytes()));
    }
  const int64_t levels = stage.shape().holding.tree_levels;
  if (levels > 0) loss_tree = arenas.temporaries.take(Dtype::f32, {levels, 1});
  if (device.place() == Place::cuda) {
    const int64_t bytes = 4 * config.train.batch / mesh.replicas() * config.model.context * bytes_of(Dtype::i32);
    batch_.emplace(device, bytes, "a batch");
    for (std::optional<StagingBuffer>& mailbox : batches_) mailbox.emplace(device, bytes);
  }
  for (std::optional<StagingBuffer>& mailbox : results_) mailbox.emplace(device, 2 * bytes_of(Dtype::f32));
  passing.read = [this](size_t unit) { traffic.read(unit); };
  passing.write = [this](size_t unit) {
    traffic.write(unit);
    if (loss_tree && stage.units()[unit].id.kind == UnitKind::head) this->device.compute().wait(loss_cleared_);
  };
  completing = passing;
  completing.done = [this](size_t unit) { complete(unit); };
}

// Gradients leave, and with the head's the loss.
void TrainState::complete(size_t unit) {
  traffic.done(unit, microbatch);
  if (stage.units()[unit].id.kind != UnitKind::head) return;
  if (loss_tree)
    loss_cleared_ = buckets.enter(loss, loss_tree, microbatch * mesh.replicas());
  else if (last)
    buckets.sum_replicas(loss);
}

const std::vector<Action>& TrainState::actions(int64_t microbatches) {
  std::vector<Action>& list = actions_[microbatches];
  if (!list.empty()) return list;
  PipelineShape shape = pipeline_shape(config, mesh.replicas());
  shape.microbatches = microbatches;
  return list = make_schedule(config.parallel.stage_schedule(), shape, mesh.pp().rank());
}

// By way of pinned memory: of two batches in turn, so that the one before may still be on its way.
Batch TrainState::on_device(const Batch& batch) {
  if (!batch_) return batch;
  Batch there = batch;
  StagingBuffer& mailbox = *batches_[static_cast<size_t>(batches_sent_++ % 2)];
  mailbox.wait();
  int64_t at = 0;
  for (Tensor Batch::*field : {&Batch::tokens, &Batch::targets, &Batch::positions, &Batch::document_start}) {
    const Tensor& from = batch.*field;
    const Tensor pinned(mailbox.data() + at, Dtype::i32, Place::cpu, {from.size()});
    std::memcpy(pinned.data(), from.data(), static_cast<size_t>(from.bytes()));
    there.*field = Tensor(batch_->data() + at, Dtype::i32, Place::cuda, {from.dim(0), from.dim(1)});
    copy(device.compute(), there.*field, pinned);
    at += from.bytes();
  }
  mailbox.posted(device.compute());
  return there;
}

// Not where a part of a step reaches into the next: with parts, the updated weights arrive behind the next forward.
Graph* TrainState::graph(int64_t valid) {
  constexpr size_t kMost = 4;  // batches whose valid targets vary are not recorded each
  const bool whole = device.place() == Place::cuda && config.kernels.graph && buckets.parts() == 1;
  const bool first = !std::exchange(stepped_, true);  // it takes the scratch memory that it needs
  if (!whole || first || device.compute().tally() != nullptr) return nullptr;
  if (!graphs_.contains(valid) && graphs_.size() == kMost) return nullptr;
  return &graphs_.try_emplace(valid, device).first->second;
}

float read_number(Stream& stream, const Tensor& x) {
  float value = 0;
  copy(stream, Tensor(&value, Dtype::f32, stream.place() == Place::none ? Place::none : Place::cpu, {1}), x);
  stream.finish();
  return value;
}

Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows) {
  const auto flat = [&](const Tensor& t) { return t.slice(first, first + rows).view({rows * t.dim(1)}); };
  return {.rows = rows,
          .context = batch.tokens.dim(1),
          .tokens = flat(batch.tokens),
          .positions = flat(batch.positions),
          .targets = flat(batch.targets),
          .document_start = flat(batch.document_start)};
}

namespace {

void run_action(TrainState& r, const Action& a, const Microbatch& batch, const LossSum& loss, bool last) {
  Stream& compute = r.device.compute();
  const Seat seat = r.pipeline.seat(a);
  r.microbatch = a.microbatch, r.last = last;
  r.mesh.mark_progress();
  const UnitHooks& hooks = last || r.traffic.reduces_each() ? r.completing : r.passing;
  switch (a.kind) {
    case ActionKind::forward:
      return r.stage.forward(compute, batch, r.passing, seat);
    case ActionKind::backward:
      return r.stage.backward(compute, batch, loss, hooks, seat, Backward::whole);
    case ActionKind::backward_input:
      return r.stage.backward(compute, batch, loss, hooks, seat, Backward::input);
    case ActionKind::backward_weight:
      return r.stage.backward(compute, batch, loss, hooks, seat, Backward::weight);
  }
}

// The same launches in every step: what differs are the batch and the numbers of the schedule, in memory.
void compute_step(TrainState& r, const Batch& batch) {
  Stream& compute = r.device.compute();
  const int64_t rows = r.stage.shape().rows, microbatches = batch.tokens.dim(0) / rows;
  const auto targets = static_cast<float>(std::max<int64_t>(batch.valid, 1));  // of a batch without any, loss and gradients are 0
  const LossSum loss{.total = r.loss, .scale = 1 / targets};

  run(compute, Fill{.x = r.loss});
  const std::vector<Action>& actions = r.actions(microbatches);
  r.pipeline.begin(actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    r.pipeline.before(i);
    run_action(r, a, microbatch(batch, a.microbatch * rows, rows), loss, a.microbatch + 1 == microbatches);
    r.pipeline.after(i);
    if (r.after) r.after(a);
  }
  if (r.loss_tree && r.stage.has_last()) r.buckets.close(r.loss_tree, microbatches * r.mesh.replicas());
  r.traffic.finish(microbatches);
  if (r.loss_tree && r.stage.has_last()) run(compute, Cast{.y = r.loss, .x = r.loss_tree.slice(0, 1)});
  if (r.mesh.pp().size() > 1) run(r.mesh.pp(), compute, AllReduce{.x = r.loss});  // the last stage's: it is 0 elsewhere
  r.mesh.mark_progress();
  r.optimizer.update(compute, r.loss);
}

}  // namespace

void begin_step(TrainState& r, const Batch& of_host, int64_t step, const StepLimits& limits) {
  r.step = step;
  const Batch batch = r.on_device(of_host);
  Stream& compute = r.device.compute();
  r.optimizer.schedule(compute, learning_rate(r.config.train, step), step + 1, r.limits(step) = limits);
  Graph* const graph = r.graph(batch.valid);
  if (graph == nullptr)
    compute_step(r, batch);
  else if (!graph->replay())
    graph->record([&] { compute_step(r, batch); });

  StagingBuffer& results = r.results(step);
  const auto result = [&](int64_t i) {
    return Tensor(results.data() + 4 * i, Dtype::f32, compute.place() == Place::none ? Place::none : Place::cpu, {1});
  };
  copy(compute, result(0), r.loss);
  copy(compute, result(1), r.optimizer.squared_norm());
  results.posted(compute);
}

StepResult end_step(TrainState& r, int64_t step) {
  if (r.device.place() == Place::none) return {};
  const StagingBuffer& results = r.results(step);
  results.wait();
  float loss = 0, squared_norm = 0;
  std::memcpy(&loss, results.data(), sizeof loss);
  std::memcpy(&squared_norm, results.data() + 4, sizeof squared_norm);
  const StepLimits& limits = r.limits(step);
  return {.loss = loss,
          .grad_norm = std::sqrt(squared_norm),
          .lr = learning_rate(r.config.train, step),
          .limits = limits,
          .updated = limits.pass(squared_norm, loss)};
}

StepResult train_step(TrainState& r, const Batch& batch, int64_t step) {
  begin_step(r, batch, step);
  return end_step(r, step);
}

void rehearse_step(TrainState& r, const Batch& batch, int64_t step) {
  r.step = step;
  Stream& compute = r.device.compute();
  r.optimizer.schedule(compute, learning_rate(r.config.train, step), step + 1, {.squared_norm = -1, .loss = -1});
  compute_step(r, r.on_device(batch));
  compute.finish();
}

}  // namespace trireme
