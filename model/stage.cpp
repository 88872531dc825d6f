#include "model/stage.h"

#include <algorithm>

#include "kernels/ops/fill.h"
#include "kernels/ops/rope.h"
#include "parallel/collectives.h"

namespace trireme {

void StageWeights::declare(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config,
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

// The units of these pieces. The head of a tied model reads the table here, or has a tied copy.
std::vector<UnitId> units_of(const ModelConfig& config, const std::vector<ModelPiece>& pieces, const TensorParallel& tensor,
                             bool tied_copy) {
  std::vector<UnitId> units;
  size_t block = 0;
  for (const ModelPiece& piece : pieces) {
    if (piece.first) units.push_back({.kind = UnitKind::table});
    if (piece.first && config.family == Family::gpt2 && tensor.first == 0) units.push_back({.kind = UnitKind::positions});
    for (int64_t layer = piece.begin; layer < piece.end; ++layer)
      units.push_back({.kind = UnitKind::block, .layer = layer, .block = block++});
    if (piece.last && tied_copy) units.push_back({.kind = UnitKind::tied_copy});
    if (piece.last) units.push_back({.kind = UnitKind::head});
  }
  return units;
}

using EachWeight = std::function<void(const Tensor&, const WeightSpec&, int64_t begin)>;

// The elements of a unit, gaps included: a multiple of the parts it is cut into.
int64_t size_of(const UnitId& unit, const ModelConfig& config, const StageShape& shape) {
  int64_t end = 0;
  StageWeights none;
  none.declare(
      unit, [&](Tensor&, const WeightSpec& spec) { end = round_up(end + spec.size(), kAlign); }, config, shape.tensor);
  return round_up(end, kAlign * shape.holding.parts);
}

// Places a unit's weights in `all`; a weight begins at the same element whatever the dtype.
void place(StageWeights& weights, const UnitId& unit, const ModelConfig& config, const TensorParallel& tensor, const Tensor& all,
           const EachWeight& each) {
  int64_t begin = 0;
  const auto visit = [&](Tensor& t, const WeightSpec& spec) {
    t = all.slice(begin, begin + spec.size());
    if (spec.shape.size() == 2) t = t.view({spec.shape[0], spec.shape[1]});
    each(t, spec, begin);
    begin = round_up(begin + spec.size(), kAlign);
  };
  weights.declare(unit, visit, config, tensor);
}

// Units that are used at different times share memory: every other block, and the two ends of the model.
size_t memory_of(const UnitId& unit, const ModelConfig& config) {
  switch (unit.kind) {
    case UnitKind::block:
      return unit.block % 2;
    case UnitKind::positions:
      return 3;
    case UnitKind::head:
      return config.tied ? 4 : 2;  // a tied head reads the table beside its own weights
    default:
      return 2;
  }
}
constexpr size_t kMemories = 5;

}  // namespace

std::vector<Parameter> take_weights(StageWeights& weights, const ModelConfig& config, Dtype dtype, Arena& arena) {
  const StageShape whole{.rows = 1, .context = config.context, .dtype = dtype};
  std::vector<Parameter> parameters;
  size_t number = 0;
  for (const UnitId& unit : units_of(config, slice_of(config.layers, 1, 1, 0), whole.tensor, false)) {
    const Tensor all = arena.take(dtype, {size_of(unit, config, whole)});
    place(weights, unit, config, whole.tensor, all, [&](const Tensor& t, const WeightSpec& spec, int64_t begin) {
      parameters.push_back({.spec = spec, .weight = t, .gradient = {}, .unit = number, .begin = begin});
    });
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
  if (shape_.pieces.empty()) shape_.pieces = slice_of(config.layers, 1, 1, 0);
  take_units(arenas);
  rope_ = take_rope(config, arenas.activations, stream);
  take_activations(arenas.activations);
}

// A tied head has a tied copy where the table is on another stage. Where gradients are summed exactly, the tied copy's is apart
// even next to the table, whose weights it then reads.
void Stage::take_units(Arenas& arenas) {
  const bool has_table = shape_.pieces.front().first, tied_copy = config_.tied && has_last() && (!has_table || shape_.tensor.exact);
  const std::vector<UnitId> ids = units_of(config_, shape_.pieces, shape_.tensor, tied_copy);
  // Memory that units share.
  std::vector<std::array<Tensor, 2>> shared(kMemories);
  for (size_t memory = 0; memory < kMemories; ++memory) {
    int64_t most = 0;
    for (const UnitId& id : ids)
      if (memory_of(id, config_) == memory) most = std::max(most, size_of(id, config_, shape_));
    if (most > 0 && !shape_.holding.weights) shared[memory][0] = arenas.temporaries.take(shape_.dtype, {most});
    if (most > 0 && !shape_.holding.gradients) shared[memory][1] = arenas.temporaries.take(Dtype::f32, {most});
  }
  for (const UnitId& id : ids) units_.push_back(take_unit(id, arenas, shared));
}

Unit Stage::take_unit(const UnitId& id, Arenas& arenas, std::vector<std::array<Tensor, 2>>& shared) {
  const Holding& holding = shape_.holding;
  const int64_t size = size_of(id, config_, shape_), part = size / holding.parts;
  Unit unit;
  unit.id = id, unit.memory = memory_of(id, config_);
  const bool tied_copy = id.kind == UnitKind::tied_copy, borrowed = tied_copy && shape_.pieces.front().first;
  const auto take = [&](bool whole, size_t which, Arena& arena, Dtype dtype) {
    if (!whole) return std::pair(shared[unit.memory][which].slice(0, size), arena.take(dtype, {part}));
    const Tensor all = arena.take(dtype, {size});
    return std::pair(all, all.slice(holding.part * part, (holding.part + 1) * part));
  };
  if (borrowed) {
    unit.weights = units_.front().weights, unit.weights_part = units_.front().weights_part;
    weights_.head.classifiers = weights_.embedding.tables;
  } else {
    std::tie(unit.weights, unit.weights_part) = take(holding.weights, 0, arenas.weights, shape_.dtype);
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
  if (!borrowed) place(weights_, id, config_, shape_.tensor, unit.weights, list);
  size_t next = known;
  place(gradients_, id, config_, shape_.tensor, unit.gradients, [&](const Tensor& t, const WeightSpec&, int64_t) {
    if (!tied_copy) parameters_[next++].gradient = t;
  });
  return unit;
}

void Stage::take_activations(Arena& arena) {
  int64_t most = 0;
  for (const ModelPiece& piece : shape_.pieces) {
    first_block_.push_back(first_block_.empty() ? 0 : first_block_.back() + static_cast<size_t>(most));
    most = piece.layers();
  }
  for (const ModelPiece& piece : shape_.pieces) most = std::max(most, piece.layers());
  const int64_t own = shape_.rows * shape_.context / shape_.tensor.row_parts();
  const bool goes_on = !shape_.pieces.front().last;
  const BlockSaved::Shape each{shape_.rows, shape_.context, shape_.dtype, shape_.halves, shape_.recompute};
  require(shape_.recompute == Recompute::none || !shape_.halves, text("recomputation for a backward in halves"));
  BlockSaved scratch;
  scratch.take_scratch(arena, shard_, shape_.tensor, each);
  for (int64_t slot = 0; slot < shape_.slots; ++slot) {
    Saved& saved = saved_.emplace_back();
    saved.blocks.resize(static_cast<size_t>(most));
    for (BlockSaved& block : saved.blocks) block.take(arena, shard_, shape_.tensor, each, scratch);
    if (goes_on) saved.outgoing = arena.take(shape_.dtype, {own, config_.width});
  }
  if (!has_last()) return;
  head_norm_.resize(static_cast<size_t>(shape_.loss_slots));
  for (NormSaved& norm : head_norm_) norm.take(arena, shard_, own, shape_.dtype);
}

Pass Stage::pass(Stream& stream, const Microbatch& batch) {
  require(batch.rows == shape_.rows && batch.context == shape_.context,
          text("a batch of ", batch.rows, " x ", batch.context, " for a stage of ", shape_.rows, " x ", shape_.context));
  return {.stream = stream,
          .temporaries = temporaries_,
          .config = shard_,
          .batch = batch,
          .rope = rope_,
          .dtype = shape_.dtype,
          .logits = shape_.logits,
          .fused_products = shape_.fused_products,
          .fused_gelu = shape_.fused_products && shape_.recompute != Recompute::selective,
          .tensor = shape_.tensor,
          .vocab = config_.vocab};
}

namespace {

// Tells of the units of this kind; of the block, where one is given.
template <class Told>
void tell(const std::vector<Unit>& units, UnitKind kind, const Told& told, size_t block = 0) {
  for (size_t unit = 0; unit < units.size(); ++unit)
    if (units[unit].id.kind == kind && units[unit].id.block == block) told(unit);
}

// What a head reads and writes: its own weights, and the table where it is tied.
template <class Told>
void tell_head(const std::vector<Unit>& units, const ModelConfig& config, const Told& told) {
  const bool tied_copy = std::ranges::any_of(units, [](const Unit& unit) { return unit.tied_copy(); });
  if (config.tied) tell(units, tied_copy ? UnitKind::tied_copy : UnitKind::table, told);
  tell(units, UnitKind::head, told);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> Stage::streams(const Seat& seat) const {
  const ModelPiece& piece = this->piece(seat.chunk);
  const Saved& saved = saved_[static_cast<size_t>(seat.slot)];
  std::vector<std::pair<std::string, Tensor>> streams;
  std::string maker = piece.first ? "embedding" : "";
  for (size_t i = 0; i < static_cast<size_t>(piece.layers()); ++i) {
    const std::string layer = "layers." + std::to_string(piece.begin + static_cast<int64_t>(i));
    streams.emplace_back(maker, saved.blocks[i].attention_norm.sum);
    if (shape_.recompute != Recompute::full) streams.emplace_back(layer + ".attention", saved.blocks[i].mlp_norm.sum);
    maker = shape_.recompute == Recompute::full ? layer : layer + ".mlp";
  }
  streams.emplace_back(maker, piece.last ? head_norm_[static_cast<size_t>(seat.loss_slot)].sum : saved.outgoing);
  return streams;
}

void Stage::forward(Stream& stream, const Microbatch& batch, const UnitHooks& hooks, const Seat& seat) {
  const auto read = [&](size_t unit) { hooks.read ? hooks.read(unit, batch) : void(); };
  Pass pass = this->pass(stream, batch);
  const ModelPiece& piece = this->piece(seat.chunk);
  Saved& saved = saved_[static_cast<size_t>(seat.slot)];
  const size_t first = first_block_[static_cast<size_t>(seat.chunk)], layers = static_cast<size_t>(piece.layers());
  const Frame frame(temporaries_);
  Tensor delta = pass.own_temporary(config_.width);
  // 1. tokens to the stream
  Residual residual{.x = incoming(seat.slot)};
  if (piece.first) {
    tell(units_, UnitKind::table, read);
    tell(units_, UnitKind::positions, read);
    embedding_forward(pass, weights_.embedding, residual.x);
  }
  // 2. the blocks
  for (size_t i = 0; i < layers; ++i) {
    tell(units_, UnitKind::block, read, first + i);
    pass.fp8 = in_fp8(piece.begin + static_cast<int64_t>(i));
    residual = block_forward(pass, weights_.blocks[first + i], saved.blocks[i], residual, delta);
  }
  if (!piece.last) return run(stream, Add{.y = saved.outgoing, .a = residual.x, .b = residual.delta});
  // 3. the last norm; the classifier follows in backward, evaluate or logits
  tell_head(units_, config_, read);
  norm_forward(pass, weights_.head.norm, head_norm_[static_cast<size_t>(seat.loss_slot)], residual);
}

void Stage::backward(Stream& stream, const Microbatch& batch, const StageBackward& of, const UnitHooks& hooks, const Seat& seat) {
  const auto& [loss, which] = of;
  const auto done = [&](size_t unit) {
    if (hooks.added) hooks.added(unit, batch);
    if (hooks.done && batch.gradients_leave) sum_shared(stream, unit), hooks.done(unit, batch);
  };
  const auto read = [&](size_t unit) { hooks.read ? hooks.read(unit, batch) : void(); };
  const auto write = [&](size_t unit) { hooks.write ? hooks.write(unit, batch) : void(); };
  Pass pass = this->pass(stream, batch);
  const ModelPiece& piece = this->piece(seat.chunk);
  Saved& saved = saved_[static_cast<size_t>(seat.slot)];
  const size_t first = first_block_[static_cast<size_t>(seat.chunk)], layers = static_cast<size_t>(piece.layers());
  Tensor d = piece.last ? head_norm_[static_cast<size_t>(seat.loss_slot)].sum : saved.outgoing;
  // 3.
  if (piece.last && which != Backward::weight) {
    const Frame frame(temporaries_);
    const NormSaved& norm = head_norm_[static_cast<size_t>(seat.loss_slot)];
    const Tensor dnorm = pass.own_temporary(config_.width);
    tell_head(units_, config_, read);
    tell_head(units_, config_, write);
    head_loss_backward(pass, {.weights = weights_.head, .gradients = gradients_.head}, norm.y, dnorm, loss);
    norm_backward(pass, {.weights = weights_.head.norm, .gradients = gradients_.head.norm}, norm, {.dy = dnorm});
    tell(units_, UnitKind::head, done);
    tell(units_, UnitKind::tied_copy, done);
  }
  // 2.
  for (size_t i = layers; i-- > 0;) {
    if (which != Backward::weight) tell(units_, UnitKind::block, read, first + i);
    if (which != Backward::input) tell(units_, UnitKind::block, write, first + i);
    pass.fp8 = in_fp8(piece.begin + static_cast<int64_t>(i));
    block_backward(pass, {.weights = weights_.blocks[first + i], .gradients = gradients_.blocks[first + i]}, saved.blocks[i], d,
                   which);
    if (which != Backward::input) tell(units_, UnitKind::block, done, first + i);
    d = saved.blocks[i].attention_norm.sum;
  }
  // 1. (with a tied head that has no tied copy, its part of the gradient is in the table since 3.)
  if (!piece.first || which == Backward::input) return;
  tell(units_, UnitKind::table, write);
  tell(units_, UnitKind::positions, write);
  embedding_backward(pass, gradients_.embedding, d);
  tell(units_, UnitKind::positions, done);
  tell(units_, UnitKind::table, done);
}

// Over the ranks of the tp group: gradients of weights that all of them hold. They stand together at the beginning of a unit.
void Stage::sum_shared(Stream& stream, size_t unit) {
  const TensorParallel& tensor = shape_.tensor;
  if (units_[unit].id.kind == UnitKind::block) sum_key_values(stream, gradients_.blocks[units_[unit].id.block]);
  if (tensor.ranks->size() == 1) return;
  int64_t begin = units_[unit].gradients.size(), end = 0;
  for (const Parameter& p : parameters_) {
    if (p.unit != unit || p.spec.shared == Shared::no || (p.spec.shared == Shared::rows && tensor.row_parts() == 1)) continue;
    begin = std::min(begin, p.begin), end = std::max(end, p.begin + p.spec.size());
  }
  if (begin < end) run(*tensor.ranks, stream, AllReduce{.x = units_[unit].gradients.slice(begin, end)});
}

// Over the shards that have the same key-value head: of this rank, and of the ranks beside it.
void Stage::sum_key_values(Stream& stream, const BlockWeights& gradients) {
  const TensorParallel& tensor = shape_.tensor;
  const int64_t sharing = tensor.count / config_.kv_heads, local = std::min(sharing, tensor.mine), q = shard_.q_width();
  if (sharing <= 1) return;
  const auto rows = [&](int64_t shard, Tensor AttentionWeights::*which) {
    const Tensor& t = gradients.attention[static_cast<size_t>(shard)].*which;
    return t ? t.slice(q, t.dim(0)) : t;
  };
  for (Tensor AttentionWeights::*which : {&AttentionWeights::qkv, &AttentionWeights::qkv_bias})
    for (int64_t first = 0; first < tensor.mine && rows(0, which); first += local) {
      const auto of = [&](int64_t i) { return rows(first + i, which); };
      for (int64_t step = 1; step < local; step *= 2)
        for (int64_t i = 0; i + step < local; i += 2 * step) run(stream, Add{.y = of(i), .a = of(i), .b = of(i + step)});
      if (tensor.sharing->size() > 1) run(*tensor.sharing, stream, AllReduce{.x = of(0)});
      for (int64_t i = 1; i < local; ++i) run(stream, Cast{.y = of(i), .x = of(0)});
    }
}

void Stage::evaluate(Stream& stream, const Microbatch& batch, const LossSum& loss, const Seat& seat) {
  Pass pass = this->pass(stream, batch);
  head_loss(pass, weights_.head, head_norm_[static_cast<size_t>(seat.loss_slot)].y, loss);
}

void Stage::logits(Stream& stream, const Microbatch& batch, Tensor logits) {
  Pass pass = this->pass(stream, batch);
  head_logits(pass, weights_.head, 0, head_norm_.front().y, logits);
}

}  // namespace trireme
