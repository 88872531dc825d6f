#include "model/stage.h"

#include <algorithm>
#include <optional>
#include <utility>

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

// Calls a hook for the units of this kind.
template <class Told>
void tell(const std::vector<Unit>& units, UnitKind kind, const Told& told) {
  for (size_t unit = 0; unit < units.size(); ++unit)
    if (units[unit].id.kind == kind) told(unit);
}

// The same for those that begin or end with a half-layer.
template <class Told>
void tell_from(const std::vector<Unit>& units, int64_t half_layer, const Told& told) {
  tell(units, UnitKind::block, [&](size_t unit) { units[unit].id.begin == half_layer ? told(unit) : void(); });
}
template <class Told>
void tell_to(const std::vector<Unit>& units, int64_t half_layer, const Told& told) {
  tell(units, UnitKind::block, [&](size_t unit) { units[unit].id.end == half_layer + 1 ? told(unit) : void(); });
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

// Units that are not held, in the order in which a pass of this chunk reads them: forward upwards, backward downwards.
std::vector<size_t> gathered_units(const std::vector<Unit>& units, const ModelConfig& config, const ModelChunk& chunk, bool up) {
  std::vector<size_t> order;
  const auto add = [&](size_t unit) { units[unit].held ? void() : order.push_back(unit); };
  if (up && chunk.first) tell(units, UnitKind::table, add), tell(units, UnitKind::positions, add);
  if (!up && chunk.last) tell_head(units, config, add);
  for (int64_t i = 0; i < chunk.half_layers(); ++i)
    up ? tell_from(units, chunk.begin + i, add) : tell_to(units, chunk.end - 1 - i, add);
  if (up && chunk.last) tell_head(units, config, add);
  return order;
}

}  // namespace

// Returns what a pass calls for each unit that it reads: the hook for that unit, and the one for the next.
std::function<void(size_t unit)> Stage::reads(const UnitHooks& hooks, const Microbatch& batch, const ModelChunk& chunk,
                                              bool up) const {
  std::vector<size_t> order;
  if (hooks.ahead && !shape_.holding.weights) order = gathered_units(units_, config_, chunk, up);
  return [this, &hooks, &batch, order = std::move(order), at = size_t{0}](size_t unit) mutable {
    if (hooks.read) hooks.read(unit, batch);
    if (at == order.size() || order[at] != unit || ++at == order.size()) return;
    if (units_[order[at]].memory != units_[unit].memory) hooks.ahead(order[at], batch);
  };
}

Tensor Stage::incoming(const Seat& seat) const { return activations_.received(seat.slot); }

// The norm before the classifier. It reads the received stream itself if no block is in between.
NormSaved Stage::last_norm(const Seat& seat) const {
  NormSaved norm = head_norm_[static_cast<size_t>(seat.loss_slot)];
  if (chunk_at(seat.chunk).blocks() == 0) norm.sum = incoming(seat);
  return norm;
}

std::vector<std::pair<std::string, Tensor>> Stage::streams(const Seat& seat) const {
  const ModelChunk& chunk = chunk_at(seat.chunk);
  const bool whole = shape_.recompute == Recompute::full;  // nothing is kept between the halves of a layer
  std::vector<std::pair<std::string, Tensor>> streams;
  std::string maker = chunk.first ? "embedding" : "";
  for (int64_t half = chunk.begin; half < chunk.end; ++half) {
    const BlockSaved& block = activations_.blocks(seat.slot)[static_cast<size_t>(half / 2 - chunk.first_layer())];
    const bool attention = is_attention(half), second = !attention && half > chunk.begin;
    const std::string layer = "layers." + std::to_string(half / 2);
    if (!whole || !second) streams.emplace_back(maker, (attention ? block.attention_norm : block.mlp_norm).sum);
    maker = whole && second ? layer : layer + (attention ? ".attention" : ".mlp");
  }
  streams.emplace_back(maker, chunk.last ? last_norm(seat).sum : outgoing(seat));
  return streams;
}

void Stage::forward(Stream& stream, const Microbatch& batch, const UnitHooks& hooks, const Seat& seat) {
  Pass pass = this->pass(stream, batch);
  pass.new_weights = batch.number == 0;
  const ModelChunk& chunk = chunk_at(seat.chunk);
  const auto read = reads(hooks, batch, chunk, true);
  const std::vector<BlockSaved>& saved = activations_.begin(seat.slot, chunk);
  const size_t first = first_block_[static_cast<size_t>(seat.chunk)];
  const Frame frame(temporaries_);
  Tensor delta = pass.own_temporary(config_.width);
  // 1. tokens to the stream
  Residual residual{.x = chunk.blocks() == 0 && chunk.first ? outgoing(seat) : incoming(seat)};
  if (chunk.first) {
    tell(units_, UnitKind::table, read);
    tell(units_, UnitKind::positions, read);
    embedding_forward(pass, weights_.embedding, residual.x);
  }
  // 2. the blocks
  for (int64_t half = chunk.begin; half < chunk.end; ++half) {
    tell_from(units_, half, read);
    const auto i = static_cast<size_t>(half / 2 - chunk.first_layer());
    pass.fp8 = in_fp8(half / 2);
    residual = (is_attention(half) ? attention_half_forward : mlp_half_forward)(pass, weights_.blocks[first + i], saved[i],
                                                                                residual, delta);
  }
  if (!chunk.last) return residual.delta ? add_up(stream, outgoing(seat), residual) : void();
  // 3. the last norm; the classifier follows in backward, evaluate or logits
  tell_head(units_, config_, read);
  norm_forward(pass, weights_.head.norm, last_norm(seat), residual);
}

bool Stage::written(const Parameter& p) const {
  if (!shape_.writes_gradients || p.spec.is_vector()) return false;
  const UnitKind kind = units_[p.unit].id.kind;
  const bool classifies = config_.tied && has_last() && std::ranges::none_of(units_, &Unit::tied_copy);
  return kind == UnitKind::block || kind == UnitKind::head || (kind == UnitKind::table && classifies);
}

void Stage::backward(Stream& stream, const Microbatch& batch, const StageBackward& of, const UnitHooks& hooks, const Seat& seat) {
  const auto& [loss, which] = of;
  const auto done = [&](size_t unit) {
    if (hooks.added) hooks.added(unit, batch);
    if (hooks.done && batch.gradients_leave) sum_shared(stream, unit), hooks.done(unit, batch);
  };
  const auto write = [&](size_t unit) { hooks.write ? hooks.write(unit, batch) : void(); };
  Pass pass = this->pass(stream, batch);
  pass.new_gradients = shape_.writes_gradients && batch.number == 0;
  const ModelChunk& chunk = chunk_at(seat.chunk);
  const auto read = reads(hooks, batch, chunk, false);
  const std::vector<BlockSaved>& saved = activations_.blocks(seat.slot);
  if (which != Backward::input) activations_.end(seat.slot);  // what others do with the places comes later on the stream
  const size_t first = first_block_[static_cast<size_t>(seat.chunk)];
  Tensor d = chunk.last ? last_norm(seat).sum : outgoing(seat);
  // 3.
  if (chunk.last && which != Backward::weight) {
    const Frame frame(temporaries_);
    const NormSaved norm = last_norm(seat);
    const Tensor dnorm = pass.own_temporary(config_.width);
    tell_head(units_, config_, read);
    tell_head(units_, config_, write);
    head_loss_backward(pass, {.weights = weights_.head, .gradients = gradients_.head}, norm.y, dnorm, loss);
    norm_backward(pass, {.weights = weights_.head.norm, .gradients = gradients_.head.norm}, norm, {.dy = dnorm});
    tell(units_, UnitKind::head, done);
    tell(units_, UnitKind::tied_copy, done);
  }
  // 2.
  for (int64_t half = chunk.end; half-- > chunk.begin;) {
    if (which != Backward::weight) tell_to(units_, half, read);
    if (which != Backward::input) tell_to(units_, half, write);
    const auto i = static_cast<size_t>(half / 2 - chunk.first_layer());
    pass.fp8 = in_fp8(half / 2);
    std::optional<BlockSaved> in_halves;
    if (!again_.empty()) in_halves = saved[i].with(again_[static_cast<size_t>(seat.again)][i]);
    const BlockSaved& block = in_halves ? *in_halves : saved[i];
    d = (is_attention(half) ? attention_half_backward : mlp_half_backward)(
        pass, {.weights = weights_.blocks[first + i], .gradients = gradients_.blocks[first + i]}, block, d, which);
    if (which != Backward::input) tell_from(units_, half, done);
  }
  // 1. (a tied head without a tied copy has added its part of the gradient to the table in 3.)
  if (!chunk.first || which == Backward::input) return;
  tell(units_, UnitKind::table, write);
  tell(units_, UnitKind::positions, write);
  embedding_backward(pass, gradients_.embedding, d);
  tell(units_, UnitKind::positions, done);
  tell(units_, UnitKind::table, done);
}

// Sums gradients of weights that all ranks of the tp group hold. They come first in each block.
void Stage::sum_shared(Stream& stream, size_t unit) {
  const TensorParallel& tensor = shape_.tensor;
  if (units_[unit].id.kind == UnitKind::block) sum_key_values(stream, units_[unit].id);
  if (tensor.ranks->size() == 1) return;
  int64_t begin = 0, end = 0;
  const auto sum = [&] {
    begin < end ? run(*tensor.ranks, stream, AllReduce{.x = units_[unit].gradients.slice(begin, end)}) : void();
  };
  bool open = false;
  for (const Parameter& p : parameters_) {
    if (p.unit != unit) continue;
    const bool shared = p.spec.shared == Shared::heads || (p.spec.shared == Shared::rows && tensor.row_parts() > 1);
    if (shared && !std::exchange(open, true)) begin = p.begin;
    if (shared) end = p.begin + p.spec.size();
    if (!shared && std::exchange(open, false)) sum();
  }
  if (open) sum();
}

// Sums gradients over the shards that share a key-value head: of this rank, and of neighbouring
// ranks.
void Stage::sum_key_values(Stream& stream, const UnitId& unit) {
  const TensorParallel& tensor = shape_.tensor;
  const int64_t sharing = tensor.count / config_.kv_heads, local = std::min(sharing, tensor.mine), q = shard_.q_width();
  if (sharing <= 1) return;
  const auto sum = [&](const std::vector<AttentionWeights>& shards, Tensor AttentionWeights::*which) {
    const auto rows = [&](int64_t shard) {
      const Tensor& t = shards[static_cast<size_t>(shard)].*which;
      return t ? t.slice(q, t.dim(0)) : t;
    };
    for (int64_t first = 0; first < tensor.mine && rows(0); first += local) {
      const auto of = [&](int64_t i) { return rows(first + i); };
      for (int64_t step = 1; step < local; step *= 2)
        for (int64_t i = 0; i + step < local; i += 2 * step) run(stream, Add{.y = of(i), .a = of(i), .b = of(i + step)});
      if (tensor.sharing->size() > 1) run(*tensor.sharing, stream, AllReduce{.x = of(0)});
      for (int64_t i = 1; i < local; ++i) run(stream, Cast{.y = of(i), .x = of(0)});
    }
  };
  unit.for_blocks([&](int64_t, size_t block, const Halves& halves) {
    if (!halves.attention) return;
    const std::vector<AttentionWeights>& shards = gradients_.blocks[block].attention;
    if (unit.dims != UnitDims::vectors) sum(shards, &AttentionWeights::qkv);
    if (unit.dims != UnitDims::matrices) sum(shards, &AttentionWeights::qkv_bias);
  });
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
