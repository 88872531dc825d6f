#include "model/stage.h"

#include <algorithm>

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {

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

// Calls a hook for the units of this kind; for the given block, if any.
template <class Told>
void tell(const std::vector<Unit>& units, UnitKind kind, const Told& told, size_t block = 0) {
  for (size_t unit = 0; unit < units.size(); ++unit)
    if (units[unit].id.kind == kind && units[unit].id.block == block) told(unit);
}

// y = the stream, of its dtype.
void add_up(Stream& stream, const Tensor& y, const Residual& residual) {
  Tensor delta = residual.delta;
  if (delta.dtype() != y.dtype()) run(stream, Cast{.y = y, .x = delta}), delta = y;
  run(stream, Add{.y = y, .a = residual.x, .b = delta});
}

// Calls a hook for the weights of the head: its own, and the table if it is tied.
template <class Told>
void tell_head(const std::vector<Unit>& units, const ModelConfig& config, const Told& told) {
  const bool tied_copy = std::ranges::any_of(units, [](const Unit& unit) { return unit.tied_copy(); });
  if (config.tied) tell(units, tied_copy ? UnitKind::tied_copy : UnitKind::table, told);
  tell(units, UnitKind::head, told);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> Stage::streams(const Seat& seat) const {
  const ModelChunk& chunk = chunk_at(seat.chunk);
  const Saved& saved = saved_[static_cast<size_t>(seat.slot)];
  std::vector<std::pair<std::string, Tensor>> streams;
  std::string maker = chunk.first ? "embedding" : "";
  for (size_t i = 0; i < static_cast<size_t>(chunk.layers()); ++i) {
    const std::string layer = "layers." + std::to_string(chunk.begin + static_cast<int64_t>(i));
    streams.emplace_back(maker, saved.blocks[i].attention_norm.sum);
    if (shape_.recompute != Recompute::full) streams.emplace_back(layer + ".attention", saved.blocks[i].mlp_norm.sum);
    maker = shape_.recompute == Recompute::full ? layer : layer + ".mlp";
  }
  streams.emplace_back(maker, chunk.last ? head_norm_[static_cast<size_t>(seat.loss_slot)].sum : saved.outgoing);
  return streams;
}

void Stage::forward(Stream& stream, const Microbatch& batch, const UnitHooks& hooks, const Seat& seat) {
  const auto read = [&](size_t unit) { hooks.read ? hooks.read(unit, batch) : void(); };
  Pass pass = this->pass(stream, batch);
  pass.new_weights = batch.number == 0;
  const ModelChunk& chunk = chunk_at(seat.chunk);
  Saved& saved = saved_[static_cast<size_t>(seat.slot)];
  const size_t first = first_block_[static_cast<size_t>(seat.chunk)], layers = static_cast<size_t>(chunk.layers());
  const Frame frame(temporaries_);
  Tensor delta = pass.own_temporary(config_.width);
  // 1. tokens to the stream
  Residual residual{.x = incoming(seat.slot)};
  if (chunk.first) {
    tell(units_, UnitKind::table, read);
    tell(units_, UnitKind::positions, read);
    embedding_forward(pass, weights_.embedding, residual.x);
  }
  // 2. the blocks
  for (size_t i = 0; i < layers; ++i) {
    tell(units_, UnitKind::block, read, first + i);
    pass.fp8 = in_fp8(chunk.begin + static_cast<int64_t>(i));
    residual = block_forward(pass, weights_.blocks[first + i], saved.blocks[i], residual, delta);
  }
  if (!chunk.last) return add_up(stream, saved.outgoing, residual);
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
  const ModelChunk& chunk = chunk_at(seat.chunk);
  Saved& saved = saved_[static_cast<size_t>(seat.slot)];
  const size_t first = first_block_[static_cast<size_t>(seat.chunk)], layers = static_cast<size_t>(chunk.layers());
  Tensor d = chunk.last ? head_norm_[static_cast<size_t>(seat.loss_slot)].sum : saved.outgoing;
  // 3.
  if (chunk.last && which != Backward::weight) {
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
    pass.fp8 = in_fp8(chunk.begin + static_cast<int64_t>(i));
    block_backward(pass, {.weights = weights_.blocks[first + i], .gradients = gradients_.blocks[first + i]}, saved.blocks[i], d,
                   which);
    if (which != Backward::input) tell(units_, UnitKind::block, done, first + i);
    d = saved.blocks[i].attention_norm.sum;
  }
  // 1. (a tied head without a tied copy has added its part of the gradient to the table in 3.)
  if (!chunk.first || which == Backward::input) return;
  tell(units_, UnitKind::table, write);
  tell(units_, UnitKind::positions, write);
  embedding_backward(pass, gradients_.embedding, d);
  tell(units_, UnitKind::positions, done);
  tell(units_, UnitKind::table, done);
}

// Sums gradients of weights that all ranks of the tp group hold. They come first in a unit.
void Stage::sum_shared(Stream& stream, size_t unit) {
  const TensorParallel& tensor = shape_.tensor;
  if (units_[unit].id.kind == UnitKind::block) sum_key_values(stream, units_[unit].id);
  if (tensor.ranks->size() == 1) return;
  int64_t begin = units_[unit].gradients.size(), end = 0;
  for (const Parameter& p : parameters_) {
    if (p.unit != unit || p.spec.shared == Shared::no || (p.spec.shared == Shared::rows && tensor.row_parts() == 1)) continue;
    begin = std::min(begin, p.begin), end = std::max(end, p.begin + p.spec.size());
  }
  if (begin < end) run(*tensor.ranks, stream, AllReduce{.x = units_[unit].gradients.slice(begin, end)});
}

// Sums gradients over the shards that share a key-value head: of this rank, and of neighbouring
// ranks.
void Stage::sum_key_values(Stream& stream, const UnitId& unit) {
  const BlockWeights& gradients = gradients_.blocks[unit.block];
  const TensorParallel& tensor = shape_.tensor;
  const int64_t sharing = tensor.count / config_.kv_heads, local = std::min(sharing, tensor.mine), q = shard_.q_width();
  if (sharing <= 1) return;
  const auto rows = [&](int64_t shard, Tensor AttentionWeights::*which) {
    const Tensor& t = gradients.attention[static_cast<size_t>(shard)].*which;
    return t ? t.slice(q, t.dim(0)) : t;
  };
  for (Tensor AttentionWeights::*which : {&AttentionWeights::qkv, &AttentionWeights::qkv_bias}) {
    if (unit.dims == (which == &AttentionWeights::qkv ? UnitDims::vectors : UnitDims::matrices)) continue;
    for (int64_t first = 0; first < tensor.mine && rows(0, which); first += local) {
      const auto of = [&](int64_t i) { return rows(first + i, which); };
      for (int64_t step = 1; step < local; step *= 2)
        for (int64_t i = 0; i + step < local; i += 2 * step) run(stream, Add{.y = of(i), .a = of(i), .b = of(i + step)});
      if (tensor.sharing->size() > 1) run(*tensor.sharing, stream, AllReduce{.x = of(0)});
      for (int64_t i = 1; i < local; ++i) run(stream, Cast{.y = of(i), .x = of(0)});
    }
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
