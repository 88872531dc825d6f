#include "train/step/train_state.h"

#include <algorithm>
#include <cmath>

#include "parallel/shared_memory.h"

namespace trireme {

namespace {

int64_t levels_of(int64_t count) {
  int64_t levels = 1;
  while ((count >> levels) > 0) ++levels;
  return levels;
}

// Counts the ranks of the tp group whose shards have the same key-value head.
int64_t sharing_ranks(const RunConfig& config, const Mesh& mesh) {
  const int64_t shards = config.parallel.shards(), mine = shards / mesh.tp().size();
  return std::max<int64_t>(1, shards / config.model.kv_heads / mine);
}

// Counts how many passes of a stage's last chunk wait for their backward at once, at most.
int64_t loss_slots_in(const std::vector<Action>& actions, int64_t chunk) {
  int64_t now = 0, most = 1;
  for (const Action& a : actions) {
    if (a.chunk != chunk) continue;
    if (a.kind == ActionKind::forward) most = std::max(most, ++now);
    if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight) --now;
  }
  return most;
}

}  // namespace

std::vector<int64_t> half_layers_of_chunks(const RunConfig& config, const PipelineShape& pipeline) {
  if (config.parallel.layers.empty())
    return deal_half_layers(work_of(config.model, config.train.recompute, config.recomputing_stages()), pipeline);
  std::vector<int64_t> counts;
  for (const double layers : config.parallel.layers) counts.push_back(std::llround(2 * layers));
  return counts;
}

namespace {

StageShape stage_shape(const RunConfig& config, const Mesh& mesh, const Comm& sharing, Device& device) {
  const ParallelConfig& p = config.parallel;
  const PipelineShape pipeline = pipeline_shape(config, mesh.replicas());
  const std::vector<Action> actions = make_schedule(p.stage_schedule(), pipeline, mesh.pp().rank());
  const std::vector<ModelChunk> chunks = chunks_of_stage(half_layers_of_chunks(config, pipeline), pipeline, mesh.pp().rank());
  const Recompute recompute = mesh.pp().rank() < config.recomputing_stages() ? config.train.recompute : Recompute::none;
  const int64_t mine = p.shards() / mesh.tp().size();
  const Comm& owners = mesh.owner_group();
  const bool divided = owners.size() > 1, fp8 = config.kernels.matmul == MatmulDtype::fp8;
  const bool on_cpu = config.kernels.device != DeviceChoice::cuda && device.place() != Place::cuda;
  const bool whole_gradients = !p.exact() && (p.zero < 2 || !divided || p.reduce_when == ReduceWhen::step);
  return {.rows = config.microbatch_rows(mesh.replicas()),
          .context = config.model.context,
          .dtype = dtype_of(config.kernels.dtype),
          .residual = config.kernels.residual_dtype(),
          .logits = config.kernels.logits_dtype(),
          .fused_products = config.kernels.fused_products(),
          .fp8_begin = fp8 ? config.kernels.bf16_layers : 0,
          .fp8_end = fp8 ? config.model.layers - config.kernels.bf16_layers : 0,
          .writes_gradients = on_cpu && whole_gradients && !p.local() && !p.compresses(),
          .rounds_once = config.kernels.fp8_weights == Fp8Weights::step && pipeline.microbatches > 1,
          .holding = {.parts = owners.size(),
                      .part = owners.rank(),
                      .weights = p.zero < 3 || !divided,
                      .gradients = whole_gradients,
                      .tree_levels = p.exact() ? levels_of(pipeline.microbatches * mesh.replicas()) : 0},
          .chunks = chunks,
          .room = room_for(actions, chunks, recompute),
          .loss_slots = loss_slots_in(actions, pipeline.chunks - 1),
          .halves = p.backward_in_halves(),
          .turns = p.turns(),
          .agains = agains_of(actions),
          .recompute = recompute,
          .unit_size = std::llround(p.unit_size * 1e6),
          .tensor = {.count = p.shards(),
                     .first = mesh.tp().rank() * mine,
                     .mine = mine,
                     .ranks = &mesh.tp(),
                     .sharing = &sharing,
                     .sequence = p.sequence,
                     .beside = p.tp_overlap && mesh.tp().size() > 1 ? &device.beside() : nullptr,
                     .exact = p.exact()}};
}

}  // namespace

PipelineShape pipeline_shape(const RunConfig& config, int64_t replicas) {
  return {.stages = config.parallel.pp,
          .microbatches = config.train.batch / replicas / config.microbatch_rows(replicas),
          .chunks = config.parallel.stage_chunks(),
          .turns = config.parallel.turns(),
          .deferred = config.parallel.deferred};
}

namespace {

Memory memory_of_gradients(const RunConfig& config, const Mesh& mesh, const Device& device) {
  bool shared = false;
  if (device.place() == Place::cpu)
    for (const Comm* group : ReplicaSync::sharing_groups(config.parallel, mesh)) shared |= lie_together(*group);
  return shared ? Memory::shared : Memory::own;
}

}  // namespace

TrainState::TrainState(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes)
    : config(config),
      mesh(mesh),
      device(device),
      arenas(device, sizes, config.train.offload == Offload::optimizer ? Memory::pinned : Memory::own,
             memory_of_gradients(config, mesh, device)),
      sharing(mesh.neighbours(sharing_ranks(config, mesh))),
      stage(config.model, stage_shape(config, mesh, sharing, device), arenas, device.compute()),
      sync(config.parallel, mesh, device, stage, arenas),
      pipeline(mesh.pp(), device, stage),
      optimizer(config, mesh, stage, sync, arenas),
      launcher(config, mesh, device),
      loss(arenas.temporaries.take(Dtype::f32, {1})),
      loss_factor(arenas.temporaries.take(Dtype::f32, {1})) {
  if (config.parallel.local() && mesh.copies() > 1) loss_sum = arenas.temporaries.take(Dtype::f32, {1});
  const int64_t levels = stage.shape().holding.tree_levels;
  if (levels > 0) loss_tree = arenas.temporaries.take(Dtype::f32, {levels, 1});
  hooks.read = [this](size_t unit, const Microbatch&) { sync.read(unit); };
  hooks.ahead = [this](size_t unit, const Microbatch&) { sync.ahead(unit); };
  hooks.write = [this](size_t unit, const Microbatch&) {
    sync.write(unit);
    if (loss_tree && stage.units()[unit].id.kind == UnitKind::head) this->device.compute().wait(loss_cleared_);
  };
  hooks.done = [this](size_t unit, const Microbatch& batch) { complete(unit, batch); };
}

// Sends the unit's gradients; the loss is sent with the head's.
void TrainState::complete(size_t unit, const Microbatch& batch) {
  sync.done(unit, batch);
  const UnitId& id = stage.units()[unit].id;
  if (id.kind != UnitKind::head || id.dims == UnitDims::matrices) return;
  if (loss_tree)
    loss_cleared_ = sync.add_to_tree(loss, loss_tree, batch.number);
  else if (batch.last)
    sync.sum(loss);
}

const std::vector<Action>& TrainState::actions(int64_t microbatches) {
  std::vector<Action>& list = actions_[microbatches];
  if (!list.empty()) return list;
  PipelineShape shape = pipeline_shape(config, mesh.replicas());
  shape.microbatches = microbatches;
  list = make_schedule(config.parallel.stage_schedule(), shape, mesh.pp().rank());
  const ActivationRoom needed = room_for(list, stage.shape().chunks, stage.shape().recompute);
  require(stage.shape().room.has_room_for(needed), text("no room for the activations of ", microbatches, " microbatches"));
  return list;
}

}  // namespace trireme
