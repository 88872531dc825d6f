// Memory of a Stage: weights and gradients in units, and saved activations.
#include <algorithm>

#include "kernels/ops/rope.h"
#include "model/stage_units.h"

namespace trireme {

namespace {

using EachWeight = std::function<void(const Tensor&, const WeightSpec&, int64_t begin)>;

// Places a unit's weights in `all`, in the order of their declaration. A weight begins at the same
// element for every dtype.
WeightVisitor placing(const Tensor& all, const EachWeight& each) {
  return [all, each, begin = int64_t{0}](Tensor& t, const WeightSpec& spec) mutable {
    t = all.slice(begin, begin + spec.size());
    if (spec.shape.size() == 2) t = t.view({spec.shape[0], spec.shape[1]});
    each(t, spec, begin);
    begin = round_up_unit(begin + spec.size());
  };
}

// Memory of a unit. Units used at different times share it: every other unit of blocks, and the two ends
// of the model.
size_t memory_of(const UnitId& unit, const ModelConfig& config) {
  if (unit.dims == UnitDims::vectors) return unit.kind == UnitKind::head ? 7 : 5 + unit.number % 2;
  switch (unit.kind) {
    case UnitKind::block:
      return unit.number % 2;
    case UnitKind::positions:
      return 3;
    case UnitKind::head:
      return config.tied ? 4 : 2;  // a tied head reads the table as well as its own weights
    default:
      return 2;
  }
}
constexpr size_t kOfVectors = 5;  // the first that only gradients of vectors use: their weights are held
constexpr size_t kMemories = 8;

}  // namespace

Tensor take_rope(const ModelConfig& config, Arena& arena, Stream& stream) {
  if (config.family != Family::llama) return {};
  const bool scaled = config.rope_scaling == RopeScaling::llama3;
  Tensor table = arena.take(Dtype::f32, {config.context, config.head_size / 2, 2});
  run(stream, RopeTable{.table = table,
                        .theta = config.theta,
                        .factor = scaled ? config.rope_factor : 1,
                        .low_factor = config.rope_low_factor,
                        .high_factor = config.rope_high_factor,
                        .original_context = static_cast<double>(config.rope_original_context)});
  return table;
}

Stage::Stage(const ModelConfig& config, const StageShape& shape, Arenas& arenas, Stream& stream)
    : config_(config), shard_(shard_config(config, shape.tensor.count)), shape_(shape), temporaries_(arenas.temporaries) {
  if (shape_.chunks.empty()) shape_.chunks = chunks_of_stage({2 * config.layers}, {}, 0);
  take_units(arenas);
  if (shape_.rounds_once) take_rounded(arenas.activations);
  rope_ = take_rope(config, arenas.activations, stream);
  take_activations(arenas.activations);
}

// A tied head has a tied copy if the table is on another stage. With exact sums it has one even
// next to the table, to keep its gradient apart; it then reads the table's weights.
void Stage::take_units(Arenas& arenas) {
  const bool has_table = shape_.chunks.front().first, tied_copy = config_.tied && has_last() && (!has_table || shape_.tensor.exact);
  const std::vector<UnitId> ids = units_of(config_, shape_, tied_copy);
  // Memory shared by units.
  std::vector<std::array<Tensor, 2>> shared(kMemories);
  for (size_t memory = 0; memory < kMemories; ++memory) {
    int64_t most = 0;
    for (const UnitId& id : ids)
      if (memory_of(id, config_) == memory) most = std::max(most, size_of(id, config_, shape_));
    if (most > 0 && !shape_.holding.weights && memory < kOfVectors)
      shared[memory][0] = arenas.temporaries.take(shape_.dtype, {most});
    if (most > 0 && !shape_.holding.gradients) shared[memory][1] = arenas.temporaries.take(Dtype::f32, {most});
  }
  for (const UnitId& id : ids) units_.push_back(take_unit(id, arenas, shared));
}

Unit Stage::take_unit(const UnitId& id, Arenas& arenas, std::vector<std::array<Tensor, 2>>& shared) {
  const Holding& holding = shape_.holding;
  const int64_t size = size_of(id, config_, shape_), part = size / holding.parts;
  Unit unit;
  unit.id = id, unit.memory = memory_of(id, config_);
  unit.held = holding.weights || id.dims == UnitDims::vectors;
  const bool tied_copy = id.kind == UnitKind::tied_copy, borrowed = tied_copy && shape_.chunks.front().first;
  const auto take = [&](bool whole, size_t which, Arena& arena, Dtype dtype) {
    if (!whole) return std::pair(shared[unit.memory][which].slice(0, size), arena.take(dtype, {part}));
    const Tensor all = arena.take(dtype, {size});
    return std::pair(all, all.slice(holding.part * part, (holding.part + 1) * part));
  };
  if (borrowed) {
    unit.weights = units_.front().weights, unit.weights_part = units_.front().weights_part;
    weights_.head.classifiers = weights_.embedding.tables;
  } else {
    std::tie(unit.weights, unit.weights_part) = take(unit.held, 0, arenas.weights, id.dtype(shape_.dtype));
  }
  if (holding.tree_levels > 0) {
    unit.gradients = shared[unit.memory][1].slice(0, size);
    unit.tree = arenas.gradients.take(Dtype::f32, {holding.tree_levels, part});
    unit.gradients_part = unit.tree.slice(0, 1).view({part});
  } else {
    std::tie(unit.gradients, unit.gradients_part) = take(holding.gradients, 1, arenas.gradients, Dtype::f32);
  }
  const size_t known = parameters_.size();
  const EachWeight list = [&](const Tensor& t, const WeightSpec& spec, int64_t begin) {
    if (!tied_copy) parameters_.push_back({.spec = spec, .weight = t, .gradient = {}, .unit = units_.size(), .begin = begin});
  };
  if (!borrowed) weights_.declare(id, placing(unit.weights, list), config_, shape_.tensor);
  size_t next = known;
  const EachWeight join = [&](const Tensor& t, const WeightSpec&, int64_t) {
    if (!tied_copy) parameters_[next++].gradient = t;
  };
  gradients_.declare(id, placing(unit.gradients, join), config_, shape_.tensor);
  return unit;
}

// Weights whose memory is shared by units come anew with each pass, so they are rounded anew.
void Stage::take_rounded(Arena& arena) {
  if (!shape_.holding.weights) return;
  for (const Unit& unit : units_) {
    if (unit.id.kind != UnitKind::block || unit.id.dims == UnitDims::vectors) continue;
    unit.id.for_blocks([&](int64_t layer, size_t block, const Halves& halves) {
      if (!in_fp8(layer)) return;
      BlockWeights& weights = weights_.blocks[block];
      if (halves.attention)
        for (AttentionWeights& shard : weights.attention) shard.take_rounded(arena);
      if (halves.mlp)
        for (MlpWeights& shard : weights.mlp) shard.take_rounded(arena);
    });
  }
}

void Stage::take_activations(Arena& arena) {
  int64_t next = 0;
  std::vector<Action> alone;  // a pass of each chunk, one after the other
  for (const ModelChunk& chunk : shape_.chunks) {
    const int64_t number = std::ssize(first_block_);
    first_block_.push_back(static_cast<size_t>(next));
    next += chunk.blocks();
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward})
      alone.push_back({.kind = kind, .microbatch = 0, .chunk = number, .slot = 0});
  }
  const int64_t own = shape_.rows * shape_.context / shape_.tensor.row_parts();
  const BlockSaved::Shape each{shape_.rows, shape_.context, shape_.dtype, shape_.residual, shape_.halves, shape_.recompute};
  if (shape_.room.slots == 0) shape_.room = room_for(alone, shape_.chunks, shape_.recompute);
  activations_.take(arena, shard_, shape_.tensor, each, shape_.room, shape_.chunks);
  int64_t blocks = 0;
  for (const ModelChunk& chunk : shape_.chunks) blocks = std::max(blocks, chunk.blocks());
  if (shape_.halves && shape_.recompute != Recompute::none)
    again_.assign(static_cast<size_t>(shape_.agains), std::vector<BlockSaved>(static_cast<size_t>(blocks)));
  for (std::vector<BlockSaved>& place : again_)
    for (BlockSaved& block : place) block.take_again(arena, shard_, shape_.tensor, each);
  if (!shape_.chunks.front().last)
    for (int64_t i = 0; i < results(); ++i) outgoing_.push_back(arena.take(shape_.residual, {own, config_.width}));
  if (!has_last()) return;
  head_norm_.resize(static_cast<size_t>(shape_.loss_slots));
  for (NormSaved& norm : head_norm_) norm.take(arena, shard_, {own, shape_.dtype, shape_.residual});
}

}  // namespace trireme
