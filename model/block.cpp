#include "model/block.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "kernels/ops/fill.h"
#include "model/shard_sum.h"

namespace trireme {

void BlockWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                           const TensorParallel& tensor, Halves halves) {
  if (halves.attention) attention_norm.declare(visit, name + ".attention_norm", config);
  if (halves.mlp) mlp_norm.declare(visit, name + ".mlp_norm", config);
  if (halves.attention) head_norm.declare(visit, name + ".attention", config);
  const auto shards = static_cast<size_t>(tensor.mine);
  if (halves.attention) attention.resize(shards);
  if (halves.mlp) mlp.resize(shards);
  for (size_t i = 0; i < shards; ++i) {
    const Shard shard = tensor.shard(static_cast<int64_t>(i));
    if (halves.attention) attention[i].declare(visit, name + ".attention", config, shard);
    if (halves.mlp) mlp[i].declare(visit, name + ".mlp", config, shard);
  }
}

namespace {

// Visits the gradients of a half's gains: one listing for the walk that allocates them and the walk that
// adds them.
void for_attention_gains(BlockSaved& saved, const ModelConfig& config, const WeightVisitor& visit) {
  saved.dattention_norm.declare(visit, "", config);
  saved.dhead_norm.declare(visit, "", config);
}
void for_mlp_gains(BlockSaved& saved, const ModelConfig& config, const WeightVisitor& visit) {
  saved.dmlp_norm.declare(visit, "", config);
}

// Memory for what `visit_all` lists, flat.
template <class VisitAll>
Tensor take_gains(Arena& arena, const VisitAll& visit_all) {
  int64_t count = 0, at = 0;
  visit_all([&](Tensor&, const WeightSpec& spec) { count += spec.size(); });
  const Tensor all = arena.take(Dtype::f32, {count});
  visit_all([&](Tensor& t, const WeightSpec& spec) { t = all.slice(at, at + spec.size()), at += spec.size(); });
  return all;
}

}  // namespace

void BlockSaved::take(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape,
                      const BlockSaved& scratch) {
  take_attention(arena, config, tensor, shape, scratch);
  take_mlp(arena, config, tensor, shape, scratch);
}

void BlockSaved::take_attention(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape,
                                const BlockSaved& scratch) {
  recompute = shape.recompute;
  attention.resize(static_cast<size_t>(tensor.mine));
  const int64_t own = shape.rows * shape.context / tensor.row_parts();
  attention_norm.take(arena, config, {own, shape.dtype, shape.residual, shape.keeps_stream}, scratch.attention_norm.y);
  for (AttentionSaved& saved : attention) saved.take(arena, config, shape.rows, shape.context, shape.dtype);
  if (shape.halves)
    attention_gains = take_gains(arena, [&](const WeightVisitor& visit) { for_attention_gains(*this, config, visit); });
}

void BlockSaved::take_mlp(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape,
                          const BlockSaved& scratch) {
  recompute = shape.recompute;
  mlp.resize(static_cast<size_t>(tensor.mine));
  const int64_t size = shape.rows * shape.context;
  const int64_t own = size / tensor.row_parts();
  mlp_norm.take(arena, config, {own, shape.dtype, shape.residual, shape.keeps_stream}, scratch.attention_norm.y);
  for (size_t i = 0; i < mlp.size(); ++i)
    mlp[i].take(arena, config, size, shape.dtype, recompute == Recompute::selective ? scratch.mlp[i].active : Tensor{});
  if (shape.halves) mlp_gains = take_gains(arena, [&](const WeightVisitor& visit) { for_mlp_gains(*this, config, visit); });
}

void BlockSaved::join_mlp(const BlockSaved& other) {
  mlp_norm = other.mlp_norm, mlp = other.mlp, recompute = other.recompute;
  mlp_gains = other.mlp_gains, dmlp_norm = other.dmlp_norm;
}

void BlockSaved::take_scratch(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape) {
  if (shape.recompute == Recompute::full) {
    Shape whole = shape;
    whole.recompute = Recompute::none;
    return take(arena, config, tensor, whole, {});
  }
  if (shape.recompute == Recompute::none) return;
  const int64_t size = shape.rows * shape.context;
  attention_norm.y = arena.take(shape.dtype, {size / tensor.row_parts(), config.width});
  mlp.resize(static_cast<size_t>(tensor.mine));
  for (MlpSaved& saved : mlp) saved.active = arena.take(shape.dtype, {size, config.ffn});
}

// Besides scratch of selective recomputation, the norms' results apart.
void BlockSaved::take_again(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape) {
  Shape without = shape;
  without.keeps_stream = false;
  take_scratch(arena, config, tensor, without);
  const int64_t own = shape.rows * shape.context / tensor.row_parts();
  if (shape.recompute == Recompute::selective) mlp_norm.y = arena.take(shape.dtype, {own, config.width});
  if (shape.recompute == Recompute::full) mlp_norm.sum = arena.take(shape.residual, {own, config.width});
}

// With recomputation of whole layers, a block keeps only the stream before it: its attention's, or its MLP's if it begins with
// that.
BlockSaved BlockSaved::with(const BlockSaved& again) const {
  if (recompute == Recompute::full) {
    BlockSaved all = again;
    all.recompute = recompute, all.attention_norm.sum = attention_norm.sum;
    if (mlp_norm.sum.data() == attention_norm.sum.data()) all.mlp_norm.sum = mlp_norm.sum;
    return all;
  }
  BlockSaved all = *this;
  all.attention_norm.y = again.attention_norm.y, all.mlp_norm.y = again.mlp_norm.y;
  for (size_t i = 0; i < all.mlp.size(); ++i) all.mlp[i].active = again.mlp[i].active;
  return all;
}

Residual attention_half_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in,
                                Tensor delta) {
  norm_forward(pass, weights.attention_norm, saved.attention_norm, in);
  const Frame frame(pass.temporaries);
  GatheredRows x(pass, saved.attention_norm.y);
  ShardSum sum(pass, delta);
  for (size_t i = 0; i < weights.attention.size(); ++i)
    attention_forward(pass, weights.attention[i], weights.head_norm, saved.attention[i],
                      {.x = x, .y = sum, .shard = static_cast<int64_t>(i)});
  sum.finish();
  return {.x = saved.attention_norm.sum, .delta = delta};
}

Residual mlp_half_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta) {
  norm_forward(pass, weights.mlp_norm, saved.mlp_norm, in);
  const Frame frame(pass.temporaries);
  GatheredRows x(pass, saved.mlp_norm.y);
  ShardSum sum(pass, delta);
  for (size_t i = 0; i < weights.mlp.size(); ++i)
    mlp_forward(pass, weights.mlp[i], saved.mlp[i], {.x = x, .y = sum, .shard = static_cast<int64_t>(i)});
  sum.finish();
  return {.x = saved.mlp_norm.sum, .delta = delta};
}

Residual block_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta) {
  return mlp_half_forward(pass, weights, saved, attention_half_forward(pass, weights, saved, in, delta), delta);
}

namespace {

// Sum over shards of the gradients of QK-norm's gains: in place, or shard by shard if the order of
// the sum is fixed.
class HeadNormSum {
 public:
  HeadNormSum(Pass& pass, const HeadNormWeights& gradients) : pass_(pass), gradients_(gradients) {
    if (!pass.tensor.exact || !gradients.q_gain) return;
    parts_ = pass.temporaries.take(Dtype::f32, {2, pass.tensor.mine, pass.config.head_size});
    run(pass.stream, Fill{.x = parts_});
  }
  HeadNormWeights part(size_t shard) const {
    if (!parts_) return gradients_;
    const auto row = [&](int64_t which) {
      const auto i = static_cast<int64_t>(shard);
      return all(which).slice(i, i + 1).view({pass_.config.head_size});
    };
    return {.q_gain = row(0), .k_gain = row(1)};
  }
  void finish() {
    if (!parts_) return;
    run(pass_.stream, SumParts{.y = gradients_.q_gain, .parts = all(0), .accumulate = true});
    run(pass_.stream, SumParts{.y = gradients_.k_gain, .parts = all(1), .accumulate = true});
  }

 private:
  Tensor all(int64_t which) const { return parts_.slice(which, which + 1).view({pass_.tensor.mine, pass_.config.head_size}); }
  Pass& pass_;
  HeadNormWeights gradients_;
  Tensor parts_;  // [2, mine, D] f32
};

// A gradient of the stream as an operand of products.
Tensor as_operand(Pass& pass, const Tensor& dy) {
  if (dy.dtype() == pass.dtype) return dy;
  const Tensor narrow = pass.own_temporary(dy.cols());
  run(pass.stream, Cast{.y = narrow, .x = dy});
  return narrow;
}

// Recomputes everything that the backward of the block reads, from the stream before it.
void forward_again(Pass& pass, const BlockWeights& weights, const BlockSaved& saved) {
  const Frame frame(pass.temporaries);
  Residual stream{.x = saved.mlp_norm.sum};
  if (!weights.attention.empty())
    stream = attention_half_forward(pass, weights, saved, {.x = saved.attention_norm.sum}, pass.own_temporary(pass.config.width));
  if (weights.mlp.empty()) return;
  norm_forward(pass, weights.mlp_norm, saved.mlp_norm, stream);
  GatheredRows x(pass, saved.mlp_norm.y);
  for (size_t i = 0; i < weights.mlp.size(); ++i) mlp_forward_up(pass, weights.mlp[i], saved.mlp[i], x);
}

// Adds gradients of gains that the first half of backward has left next to the activations.
void add_gains(Pass& pass, const std::initializer_list<std::pair<Tensor, Tensor>>& gradients_and_parts) {
  for (const auto& [gradient, part] : gradients_and_parts)
    if (gradient) run(pass.stream, Add{.y = gradient, .a = gradient, .b = part});
}

// Rounded gradients that the first half leaves to the second, if that follows at once; by shard.
template <class Kept>
std::vector<Kept> kept_gradients(Pass& pass, size_t shards, Backward which) {
  std::vector<Kept> kept(shards);
  if (which == Backward::whole) std::ranges::generate(kept, [&] { return Kept::take(pass); });
  return kept;
}

// All rows of x, which the weights' products read. Beside products their gather begins with the object, if these come in
// this pass; x must be complete then. Otherwise it begins when it is needed, to save memory.
class RowsForWeights {
 public:
  RowsForWeights(Pass& pass, Tensor x, Backward which) : pass_(pass), x_(x) {
    if (runs_beside(pass) && which != Backward::input) rows_.emplace(pass, x);
  }
  Tensor all() { return rows_ ? rows_->all() : gather_rows(pass_, x_); }

 private:
  Pass& pass_;
  Tensor x_;
  std::optional<GatheredRows> rows_;
};

}  // namespace

Tensor mlp_half_backward(Pass& pass, const Trained<BlockWeights>& block, const BlockSaved& saved, Tensor dy, Backward which) {
  const auto& [weights, gradients] = block;
  const bool now = which != Backward::input;  // gradients of gains are added at once, not left next to the activations
  NormWeights dnorm_gains = now ? gradients.mlp_norm : saved.dmlp_norm;
  if (!now) run(pass.stream, Fill{.x = saved.mlp_gains});
  const bool again = which != Backward::weight;  // what is recomputed stays for the second half
  if (saved.recompute == Recompute::full && again) forward_again(pass, weights, saved);
  const Frame frame(pass.temporaries);
  GatheredRows dall(pass, as_operand(pass, dy));
  if (saved.recompute == Recompute::selective && again) {
    norm_forward(pass, weights.mlp_norm, saved.mlp_norm, {.x = saved.mlp_norm.sum});
    for (const MlpSaved& each : saved.mlp) mlp_activate(pass, each);
  }
  RowsForWeights x(pass, saved.mlp_norm.y, which);
  const auto kept = kept_gradients<MlpKept>(pass, saved.mlp.size(), which);
  const auto add_to_weights = [&] {
    const Tensor d = dall.all(), all = x.all();
    for (size_t i = 0; i < saved.mlp.size(); ++i)
      mlp_backward_weight(pass, gradients.mlp[i], saved.mlp[i], {.dy = d, .x = all, .kept = kept[i]});
  };
  const bool beside_sum = which == Backward::whole && runs_beside(pass);
  if (which != Backward::weight) {
    const Frame inner(pass.temporaries);
    const Tensor dnorm = pass.own_temporary(pass.config.width);
    ShardSum sum(pass, dnorm);
    for (size_t i = 0; i < saved.mlp.size(); ++i)
      mlp_backward_input(pass, weights.mlp[i], saved.mlp[i],
                         {.dy = dall, .dx = sum, .shard = static_cast<int64_t>(i), .keep = kept[i]});
    if (beside_sum) add_to_weights();
    sum.finish();
    norm_backward(pass, {.weights = weights.mlp_norm, .gradients = dnorm_gains}, saved.mlp_norm, {.dy = dnorm, .dsum = dy});
  }
  if (now && !beside_sum) add_to_weights();
  if (which == Backward::weight)
    add_gains(pass, {{gradients.mlp_norm.gain, saved.dmlp_norm.gain}, {gradients.mlp_norm.bias, saved.dmlp_norm.bias}});
  return saved.mlp_norm.sum;
}

Tensor attention_half_backward(Pass& pass, const Trained<BlockWeights>& block, const BlockSaved& saved, Tensor dy, Backward which) {
  const auto& [weights, gradients] = block;
  const bool now = which != Backward::input;
  NormWeights dnorm_gains = now ? gradients.attention_norm : saved.dattention_norm;
  const HeadNormWeights dhead_gains = now ? gradients.head_norm : saved.dhead_norm;
  if (!now) run(pass.stream, Fill{.x = saved.attention_gains});
  const bool again = which != Backward::weight;
  if (saved.recompute == Recompute::full && weights.mlp.empty() && again) forward_again(pass, weights, saved);
  const Frame frame(pass.temporaries);
  GatheredRows dall(pass, as_operand(pass, dy));
  if (saved.recompute == Recompute::selective && again)
    norm_forward(pass, weights.attention_norm, saved.attention_norm, {.x = saved.attention_norm.sum});
  RowsForWeights x(pass, saved.attention_norm.y, which);
  const auto kept = kept_gradients<AttentionKept>(pass, saved.attention.size(), which);
  const auto add_to_weights = [&] {
    const Tensor d = dall.all(), all = x.all();
    for (size_t i = 0; i < saved.attention.size(); ++i)
      attention_backward_weight(pass, gradients.attention[i], saved.attention[i], {.dy = d, .x = all, .kept = kept[i]});
  };
  const bool beside_sum = which == Backward::whole && runs_beside(pass);
  if (which != Backward::weight) {
    const Frame inner(pass.temporaries);
    const Tensor dnorm = pass.own_temporary(pass.config.width);
    ShardSum sum(pass, dnorm);
    HeadNormSum gains(pass, dhead_gains);
    for (size_t i = 0; i < saved.attention.size(); ++i) {
      HeadNormWeights part = gains.part(i);
      attention_backward_input(pass, weights.attention[i], {.weights = weights.head_norm, .gradients = part}, saved.attention[i],
                               {.dy = dall, .dx = sum, .shard = static_cast<int64_t>(i), .keep = kept[i]});
    }
    gains.finish();
    if (beside_sum) add_to_weights();
    sum.finish();
    norm_backward(pass, {.weights = weights.attention_norm, .gradients = dnorm_gains}, saved.attention_norm,
                  {.dy = dnorm, .dsum = dy});
  }
  if (now && !beside_sum) add_to_weights();
  if (which == Backward::weight)
    add_gains(pass, {{gradients.attention_norm.gain, saved.dattention_norm.gain},
                     {gradients.attention_norm.bias, saved.dattention_norm.bias},
                     {gradients.head_norm.q_gain, saved.dhead_norm.q_gain},
                     {gradients.head_norm.k_gain, saved.dhead_norm.k_gain}});
  return saved.attention_norm.sum;
}

}  // namespace trireme
