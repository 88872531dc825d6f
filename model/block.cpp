#include "model/block.h"

namespace trireme {

void BlockWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  attention_norm.declare(visit, name + ".attention_norm", config);
  attention.declare(visit, name + ".attention", config);
  mlp_norm.declare(visit, name + ".mlp_norm", config);
  mlp.declare(visit, name + ".mlp", config);
}

void BlockSaved::take(Arena& arena, const ModelConfig& config, int64_t rows, int64_t context, Dtype dtype) {
  attention_norm.take(arena, config, rows * context, dtype);
  attention.take(arena, config, rows, context, dtype);
  mlp_norm.take(arena, config, rows * context, dtype);
  mlp.take(arena, config, rows * context, dtype);
}

Residual block_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta) {
  // 1. attention on the normalised stream
  norm_forward(pass, weights.attention_norm, saved.attention_norm, in);
  attention_forward(pass, weights.attention, saved.attention, saved.attention_norm.y, delta);
  // 2. MLP on the normalised stream
  norm_forward(pass, weights.mlp_norm, saved.mlp_norm, {.x = saved.attention_norm.sum, .delta = delta});
  mlp_forward(pass, weights.mlp, saved.mlp, saved.mlp_norm.y, delta);
  return {.x = saved.mlp_norm.sum, .delta = delta};
}

void block_backward(Pass& pass, const BlockWeights& weights, BlockWeights& gradients, const BlockSaved& saved, Tensor d) {
  const Frame frame(pass.temporaries);
  Tensor dnorm = pass.temporary(pass.config.width);
  // 2.
  mlp_backward(pass, weights.mlp, gradients.mlp, saved.mlp, saved.mlp_norm.y, d, dnorm);
  norm_backward(pass, weights.mlp_norm, gradients.mlp_norm, saved.mlp_norm, dnorm, d, false);
  // 1.
  attention_backward(pass, weights.attention, gradients.attention, saved.attention, saved.attention_norm.y, d, dnorm);
  norm_backward(pass, weights.attention_norm, gradients.attention_norm, saved.attention_norm, dnorm, d, false);
}

}  // namespace trireme
