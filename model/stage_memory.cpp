// Memory of a Stage: units, the weights and gradients in them, and saved activations.
#include <algorithm>

#include "kernels/ops/rope.h"
#include "model/stage.h"

namespace trireme {

void StageWeights::declare(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config,
                           const TensorParallel& tensor) {
  const WeightVisitor visit_some = [&](Tensor& t, const WeightSpec& spec) {
    if (unit.has(spec)) visit(t, spec);
  };
  declare_kind(unit, visit_some, config, tensor);
}

void StageWeights::declare_kind(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config,
                                const TensorParallel& tensor) {
  switch (unit.kind) {
    case UnitKind::table:
      return embedding.declare_tables(visit, "embedding", config, tensor);
    case UnitKind::positions:
      return embedding.declare_positions(visit, "embedding", config, tensor);
    case UnitKind::block:
      blocks.resize(std::max(blocks.size(), unit.block + 1));
      return blocks[unit.block].declare(visit, "layers." + std::to_string(unit.layer), config, tensor);
    case UnitKind::tied_copy: {
      EmbeddingWeights copy;
      copy.declare_tables(visit, "embedding", config, tensor);
      head.classifiers = copy.tables;
      return;
    }
    case UnitKind::head: {
      const std::vector<Tensor> tables = head.classifiers.empty() ? embedding.tables : head.classifiers;
      head.declare(visit, "head", config, tensor);
      if (config.tied) head.classifiers = tables;
    }
  }
}

namespace {

constexpr int64_t kAlign = 128;  // elements: 256 bytes in bf16

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The units of these pieces. A tied head reads the table here, or has a tied copy.
std::vector<UnitId> whole_units(const ModelConfig& config, const std::vector<ModelChunk>& chunks, const TensorParallel& tensor,
                                bool tied_copy) {
  std::vector<UnitId> units;
  size_t block = 0;
  for (const ModelChunk& chunk : chunks) {
    if (chunk.first) units.push_back({.kind = UnitKind::table});
    if (chunk.first && config.family == Family::gpt2 && tensor.first == 0) units.push_back({.kind = UnitKind::positions});
    for (int64_t layer = chunk.begin; layer < chunk.end; ++layer)
      units.push_back({.kind = UnitKind::block, .layer = layer, .block = block++});
    if (chunk.last && tied_copy) units.push_back({.kind = UnitKind::tied_copy});
    if (chunk.last) units.push_back({.kind = UnitKind::head});
  }
  return units;
}

// The same for a step of this dtype, in which weights of one dim may be units of their own.
std::vector<UnitId> units_of(const ModelConfig& config, const StageShape& shape, bool tied_copy) {
  std::vector<UnitId> units;
  for (const UnitId& whole : whole_units(config, shape.chunks, shape.tensor, tied_copy)) {
    const bool mixed = whole.kind == UnitKind::block || whole.kind == UnitKind::head;
    if (shape.dtype == Dtype::f32 || !mixed) {
      units.push_back(whole);
      continue;
    }
    for (const UnitDims dims : {UnitDims::matrices, UnitDims::vectors}) {
      if (dims == UnitDims::matrices && whole.kind == UnitKind::head && config.tied) continue;  // it has none
      units.push_back(whole);
      units.back().dims = dims;
    }
  }
  return units;
}

using EachWeight = std::function<void(const Tensor&, const WeightSpec&, int64_t begin)>;

// Elements of a unit, gaps included: a multiple of the number of parts into which it is cut.
int64_t size_of(const UnitId& unit, const ModelConfig& config, const StageShape& shape) {
  int64_t end = 0;
  StageWeights none;
  none.declare(
      unit, [&](Tensor&, const WeightSpec& spec) { end = round_up(end + spec.size(), kAlign); }, config, shape.tensor);
  return round_up(end, kAlign * shape.holding.parts);
}

// Places a unit's weights in `all`, in the order of their declaration. A weight begins at the same
// element for every dtype.
WeightVisitor placing(const Tensor& all, const EachWeight& each) {
  return [all, each, begin = int64_t{0}](Tensor& t, const WeightSpec& spec) mutable {
    t = all.slice(begin, begin + spec.size());
    if (spec.shape.size() == 2) t = t.view({spec.shape[0], spec.shape[1]});
    each(t, spec, begin);
    begin = round_up(begin + spec.size(), kAlign);
  };
}

// Memory of a unit. Units used at different times share it: every other block, and the two ends of
// the model.
size_t memory_of(const UnitId& unit, const ModelConfig& config) {
  if (unit.dims == UnitDims::vectors) return unit.kind == UnitKind::head ? 7 : 5 + unit.block % 2;
  switch (unit.kind) {
    case UnitKind::block:
      return unit.block % 2;
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

std::vector<Parameter> take_weights(StageWeights& weights, const ModelConfig& config, Dtype dtype, Arena& arena) {
  const StageShape whole{.rows = 1, .context = config.context, .dtype = dtype, .chunks = chunks_of_stage({config.layers}, 1, 0)};
  std::vector<Parameter> parameters;
  size_t number = 0;
  for (const UnitId& unit : units_of(config, whole, false)) {
    const Tensor all = arena.take(unit.dtype(dtype), {size_of(unit, config, whole)});
    const EachWeight list = [&](const Tensor& t, const WeightSpec& spec, int64_t begin) {
      parameters.push_back({.spec = spec, .weight = t, .gradient = {}, .unit = number, .begin = begin});
    };
    weights.declare(unit, placing(all, list), config, whole.tensor);
    ++number;
  }
  return parameters;
}

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
  if (shape_.chunks.empty()) shape_.chunks = chunks_of_stage({config.layers}, 1, 0);
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
    if (unit.id.kind != UnitKind::block || unit.id.dims == UnitDims::vectors || !in_fp8(unit.id.layer)) continue;
    BlockWeights& block = weights_.blocks[unit.id.block];
    for (AttentionWeights& shard : block.attention) shard.take_rounded(arena);
    for (MlpWeights& shard : block.mlp) shard.take_rounded(arena);
  }
}

void Stage::take_activations(Arena& arena) {
  int64_t most = 0;
  for (const ModelChunk& chunk : shape_.chunks) {
    first_block_.push_back(first_block_.empty() ? 0 : first_block_.back() + static_cast<size_t>(most));
    most = chunk.layers();
  }
  for (const ModelChunk& chunk : shape_.chunks) most = std::max(most, chunk.layers());
  const int64_t own = shape_.rows * shape_.context / shape_.tensor.row_parts();
  const bool goes_on = !shape_.chunks.front().last;
  const BlockSaved::Shape each{shape_.rows, shape_.context, shape_.dtype, shape_.residual, shape_.halves, shape_.recompute};
  require(shape_.recompute == Recompute::none || !shape_.halves, text("recomputation is not available with a backward in halves"));
  BlockSaved scratch;
  scratch.take_scratch(arena, shard_, shape_.tensor, each);
  if (shape_.slots.empty()) shape_.slots = {most};
  for (const int64_t layers : shape_.slots) {
    Saved& saved = saved_.emplace_back();
    saved.blocks.resize(static_cast<size_t>(layers));
    for (BlockSaved& block : saved.blocks) block.take(arena, shard_, shape_.tensor, each, scratch);
    if (goes_on) saved.outgoing = arena.take(shape_.residual, {own, config_.width});
  }
  if (!has_last()) return;
  head_norm_.resize(static_cast<size_t>(shape_.loss_slots));
  for (NormSaved& norm : head_norm_) norm.take(arena, shard_, {own, shape_.dtype, shape_.residual});
}

}  // namespace trireme
