// The feed-forward part: GELU (gpt2) or SwiGLU (llama). One shard has hidden size F; the results of
// the shards are summed.
#pragma once

#include "model/linear.h"
#include "model/shard_sum.h"

namespace trireme {

struct MlpWeights {
  Tensor up;         // gpt2: [F, C];  llama: [2 F, C], rows of gate, then of up
  Tensor up_bias;    // [F], gpt2 only
  Tensor down;       // [C, F]
  Tensor down_bias;  // [C], gpt2's first shard only
  RoundedWeight rounded_up, rounded_down;
  // `config` is the whole model's.
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const Shard& shard);
  void take_rounded(Arena& arena) { rounded_up.take(arena, up), rounded_down.take(arena, down); }
};

struct MlpSaved {
  Tensor hidden;  // [N, F] or [N, 2 F] before the activation; after backward its gradient, unless that is kept apart
  Tensor active;  // [N, F] after the activation
  // `active`: memory to use; absent: takes its own.
  void take(Arena& arena, const ModelConfig& config, int64_t size, Dtype dtype, Tensor active = {});
  MlpSaved of(const RowRange& rows) const { return {.hidden = rows.of(hidden), .active = rows.of(active)}; }
};

// mlp_forward_up computes saved.active from x [N, C], as in mlp_forward; mlp_activate from
// saved.hidden.
void mlp_forward_up(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, GatheredRows& x);
void mlp_activate(Pass& pass, const MlpSaved& saved);
// y [N, C] = mlp(x [N, C]).
void mlp_forward(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, const ShardForward& rows);
// Values that the backward of the input can keep for the backward of the weights in the same pass.
struct MlpKept {
  KeptGradient down, up;
  Tensor dhidden{};  // [N, F], if a product computes it with gelu's gradient: it cannot replace what it reads
  MlpKept of(const RowRange& rows) const { return {.down = down, .up = up, .dhidden = rows.of(dhidden)}; }
  static MlpKept take(Pass& pass);
};
// dx [N, C] from dy [N, C].
void mlp_backward_input(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, const ShardBackwardInput<MlpKept>& rows);
// Adds to gradients, at any time after the backward of the input; with `kept`, in the same pass.
void mlp_backward_weight(Pass& pass, MlpWeights& gradients, const MlpSaved& saved, const PartBackwardWeight<MlpKept>& rows);

}  // namespace trireme
