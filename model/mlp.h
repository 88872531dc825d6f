// The feed-forward part: GELU (gpt2) or SwiGLU (llama). Hidden size F, of one shard: the shards' results add up.
#pragma once

#include "model/linear.h"

namespace trireme {

struct MlpWeights {
  Tensor up;         // gpt2: [F, C];  llama: [2 F, C], rows of gate, then of up
  Tensor up_bias;    // [F], gpt2 only
  Tensor down;       // [C, F]
  Tensor down_bias;  // [C], gpt2's first shard only
  // config: of the whole model.
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const Shard& shard);
};

struct MlpSaved {
  Tensor hidden;  // [N, F] or [N, 2 F] before the activation; since backward its gradient
  Tensor active;  // [N, F] after it
  // `active`: memory for it; absent: of its own.
  void take(Arena& arena, const ModelConfig& config, int64_t size, Dtype dtype, Tensor active = {});
};

// saved.active from x [N, C], as in mlp_forward; mlp_activate: from saved.hidden.
void mlp_forward_up(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, Tensor x);
void mlp_activate(Pass& pass, const MlpSaved& saved);
// y [N, C] = mlp(x [N, C]).
void mlp_forward(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, const PartForward& rows);
// What the gradient of the input can keep for those of the weights, in the same pass.
struct MlpKept {
  KeptGradient down, up;
  static MlpKept take(Pass& pass);
};
// dx [N, C] from dy [N, C].
void mlp_backward_input(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, const PartBackwardInput<MlpKept>& rows);
// Adds to gradients, any time after that; with `kept`, in the same pass.
void mlp_backward_weight(Pass& pass, MlpWeights& gradients, const MlpSaved& saved, const PartBackwardWeight<MlpKept>& rows);

}  // namespace trireme
