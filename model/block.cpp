#include "model/block.h"

#include <algorithm>

#include "kernels/ops/fill.h"
#include "model/shard_sum.h"

namespace trireme {

void BlockWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                           const TensorParallel& tensor) {
  attention_norm.declare(visit, name + ".attention_norm", config);
  mlp_norm.declare(visit, name + ".mlp_norm", config);
  head_norm.declare(visit, name + ".attention", config);
  attention.resize(static_cast<size_t>(tensor.mine));
  mlp.resize(static_cast<size_t>(tensor.mine));
  for (size_t i = 0; i < mlp.size(); ++i) {
    const Shard shard = tensor.shard(static_cast<int64_t>(i));
    attention[i].declare(visit, name + ".attention", config, shard);
    mlp[i].declare(visit, name + ".mlp", config, shard);
  }
}

namespace {

// Visits the gradients of the gains: one listing for the walk that allocates them and the walk that
// adds them.
void for_gains(BlockSaved& saved, const ModelConfig& config, const WeightVisitor& visit) {
  saved.dattention_norm.declare(visit, "", config);
  saved.dmlp_norm.declare(visit, "", config);
  saved.dhead_norm.declare(visit, "", config);
}

}  // namespace

void BlockSaved::take(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape,
                      const BlockSaved& scratch) {
  const int64_t size = shape.rows * shape.context, own = size / tensor.row_parts();
  if (shape.recompute == Recompute::full) *this = scratch;
  recompute = shape.recompute;
  if (recompute == Recompute::full) {
    attention_norm.sum = arena.take(shape.residual, {own, config.width});
    return;
  }
  const bool selective = recompute == Recompute::selective;
  const Tensor y = scratch.attention_norm.y;
  attention.resize(static_cast<size_t>(tensor.mine));
  mlp.resize(static_cast<size_t>(tensor.mine));
  attention_norm.take(arena, config, {own, shape.dtype, shape.residual}, y);
  for (AttentionSaved& saved : attention) saved.take(arena, config, shape.rows, shape.context, shape.dtype);
  mlp_norm.take(arena, config, {own, shape.dtype, shape.residual}, y);
  for (size_t i = 0; i < mlp.size(); ++i)
    mlp[i].take(arena, config, size, shape.dtype, selective ? scratch.mlp[i].active : Tensor{});
  if (!shape.halves) return;
  int64_t count = 0, at = 0;
  for_gains(*this, config, [&](Tensor&, const WeightSpec& spec) { count += spec.size(); });
  gains = arena.take(Dtype::f32, {count});
  for_gains(*this, config, [&](Tensor& t, const WeightSpec& spec) { t = gains.slice(at, at + spec.size()), at += spec.size(); });
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

namespace {

// 1. attention on the normalised stream, and the norm of 2.
void forward_to_mlp(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta) {
  norm_forward(pass, weights.attention_norm, saved.attention_norm, in);
  {
    const Frame frame(pass.temporaries);
    const Tensor x = gather_rows(pass, saved.attention_norm.y);
    ShardSum sum(pass, delta);
    for (size_t i = 0; i < weights.attention.size(); ++i)
      attention_forward(pass, weights.attention[i], weights.head_norm, saved.attention[i],
                        {.x = x, .y = sum.part(static_cast<int64_t>(i))});
    sum.finish();
  }
  norm_forward(pass, weights.mlp_norm, saved.mlp_norm, {.x = saved.attention_norm.sum, .delta = delta});
}

// Recomputes everything that backward reads, from the stream before the block.
void forward_again(Pass& pass, const BlockWeights& weights, const BlockSaved& saved) {
  const Frame frame(pass.temporaries);
  forward_to_mlp(pass, weights, saved, {.x = saved.attention_norm.sum}, pass.own_temporary(pass.config.width));
  const Tensor x = gather_rows(pass, saved.mlp_norm.y);
  for (size_t i = 0; i < weights.mlp.size(); ++i) mlp_forward_up(pass, weights.mlp[i], saved.mlp[i], x);
}

}  // namespace

Residual block_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta) {
  forward_to_mlp(pass, weights, saved, in, delta);
  // 2. MLP on the normalised stream
  {
    const Frame frame(pass.temporaries);
    const Tensor x = gather_rows(pass, saved.mlp_norm.y);
    ShardSum sum(pass, delta);
    for (size_t i = 0; i < weights.mlp.size(); ++i)
      mlp_forward(pass, weights.mlp[i], saved.mlp[i], {.x = x, .y = sum.part(static_cast<int64_t>(i))});
    sum.finish();
  }
  return {.x = saved.mlp_norm.sum, .delta = delta};
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

// Destinations of the first half's gradients of gains: final, or next to the activations until the
// second half.
struct Gains {
  NormWeights attention_norm, mlp_norm;
  HeadNormWeights head_norm;
};

// Rounded gradients that the first half leaves to the second, if that follows at once; by shard.
template <class Kept>
std::vector<Kept> kept_gradients(Pass& pass, size_t shards, Backward which) {
  std::vector<Kept> kept(shards);
  if (which == Backward::whole) std::ranges::generate(kept, [&] { return Kept::take(pass); });
  return kept;
}

// State shared by the backward of the block's two parts.
struct BlockBackward {
  Trained<BlockWeights> block;
  const BlockSaved& saved;
  Gains& gains;
  Backward which;
};

void attention_half(Pass& pass, const BlockBackward& backward, Tensor dy) {
  const auto& [weights, gradients] = backward.block;
  const BlockSaved& saved = backward.saved;
  const Frame frame(pass.temporaries);
  const Tensor dall = gather_rows(pass, as_operand(pass, dy));
  if (saved.recompute == Recompute::selective)
    norm_forward(pass, weights.attention_norm, saved.attention_norm, {.x = saved.attention_norm.sum});
  const auto kept = kept_gradients<AttentionKept>(pass, saved.attention.size(), backward.which);
  if (backward.which != Backward::weight) {
    const Frame inner(pass.temporaries);
    const Tensor dnorm = pass.own_temporary(pass.config.width);
    ShardSum sum(pass, dnorm);
    HeadNormSum gains(pass, backward.gains.head_norm);
    for (size_t i = 0; i < saved.attention.size(); ++i) {
      HeadNormWeights part = gains.part(i);
      attention_backward_input(pass, weights.attention[i], {.weights = weights.head_norm, .gradients = part}, saved.attention[i],
                               {.dy = dall, .dx = sum.part(static_cast<int64_t>(i)), .keep = kept[i]});
    }
    sum.finish();
    gains.finish();
    norm_backward(pass, {.weights = weights.attention_norm, .gradients = backward.gains.attention_norm}, saved.attention_norm,
                  {.dy = dnorm, .dsum = dy});
  }
  if (backward.which != Backward::input) {
    const Tensor x = gather_rows(pass, saved.attention_norm.y);
    for (size_t i = 0; i < saved.attention.size(); ++i)
      attention_backward_weight(pass, gradients.attention[i], saved.attention[i], {.dy = dall, .x = x, .kept = kept[i]});
  }
}

void mlp_half(Pass& pass, const BlockBackward& backward, Tensor dy) {
  const auto& [weights, gradients] = backward.block;
  const BlockSaved& saved = backward.saved;
  const Frame frame(pass.temporaries);
  const Tensor dall = gather_rows(pass, as_operand(pass, dy));
  if (saved.recompute == Recompute::selective) {
    norm_forward(pass, weights.mlp_norm, saved.mlp_norm, {.x = saved.mlp_norm.sum});
    for (const MlpSaved& each : saved.mlp) mlp_activate(pass, each);
  }
  const auto kept = kept_gradients<MlpKept>(pass, saved.mlp.size(), backward.which);
  if (backward.which != Backward::weight) {
    const Frame inner(pass.temporaries);
    const Tensor dnorm = pass.own_temporary(pass.config.width);
    ShardSum sum(pass, dnorm);
    for (size_t i = 0; i < saved.mlp.size(); ++i)
      mlp_backward_input(pass, weights.mlp[i], saved.mlp[i],
                         {.dy = dall, .dx = sum.part(static_cast<int64_t>(i)), .keep = kept[i]});
    sum.finish();
    norm_backward(pass, {.weights = weights.mlp_norm, .gradients = backward.gains.mlp_norm}, saved.mlp_norm,
                  {.dy = dnorm, .dsum = dy});
  }
  if (backward.which != Backward::input) {
    const Tensor x = gather_rows(pass, saved.mlp_norm.y);
    for (size_t i = 0; i < saved.mlp.size(); ++i)
      mlp_backward_weight(pass, gradients.mlp[i], saved.mlp[i], {.dy = dall, .x = x, .kept = kept[i]});
  }
}

}  // namespace

void block_backward(Pass& pass, const Trained<BlockWeights>& block, const BlockSaved& saved, Tensor dy, Backward which) {
  const auto& [weights, gradients] = block;
  Gains to{gradients.attention_norm, gradients.mlp_norm, gradients.head_norm};
  if (which == Backward::input) {
    to = {saved.dattention_norm, saved.dmlp_norm, saved.dhead_norm};
    run(pass.stream, Fill{.x = saved.gains});
  }
  if (saved.recompute == Recompute::full) forward_again(pass, weights, saved);
  // 2.
  const BlockBackward backward{.block = block, .saved = saved, .gains = to, .which = which};
  mlp_half(pass, backward, dy);
  // 1. the gradient of the stream between the parts replaces the stream itself
  attention_half(pass, backward, saved.mlp_norm.sum);
  if (which != Backward::weight) return;
  for (const auto& [gradient, part] :
       {std::pair(to.attention_norm.gain, saved.dattention_norm.gain),
        std::pair(to.attention_norm.bias, saved.dattention_norm.bias), std::pair(to.mlp_norm.gain, saved.dmlp_norm.gain),
        std::pair(to.mlp_norm.bias, saved.dmlp_norm.bias), std::pair(to.head_norm.q_gain, saved.dhead_norm.q_gain),
        std::pair(to.head_norm.k_gain, saved.dhead_norm.k_gain)})
    if (gradient) run(pass.stream, Add{.y = gradient, .a = gradient, .b = part});
}

}  // namespace trireme
