// One transformer block: stream += attention(norm(stream)); stream += mlp(norm(stream)).
#pragma once

#include "model/attention.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace trireme {

struct BlockWeights {
  NormWeights attention_norm;
  AttentionWeights attention;
  NormWeights mlp_norm;
  MlpWeights mlp;
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config);
};

struct BlockSaved {
  NormSaved attention_norm;
  AttentionSaved attention;
  NormSaved mlp_norm;
  MlpSaved mlp;
  void take(Arena& arena, const ModelConfig& config, int64_t rows, int64_t context, Dtype dtype);
};

// The stream after the block. `delta` [N, C] is memory for the pending addend; it may be in.delta.
Residual block_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta);
// d [N, C]: in, the gradient of the stream after the block; out, of the stream before it. Adds to gradients.
void block_backward(Pass& pass, const BlockWeights& weights, BlockWeights& gradients, const BlockSaved& saved, Tensor d);

}  // namespace trireme
