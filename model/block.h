// One transformer block: stream += attention(norm(stream)); stream += mlp(norm(stream)).
#pragma once

#include "model/attention.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace trireme {

// Weights of a block: first those shared by all shards, then this rank's shards.
struct BlockWeights {
  NormWeights attention_norm, mlp_norm;
  HeadNormWeights head_norm;
  std::vector<AttentionWeights> attention;
  std::vector<MlpWeights> mlp;
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const TensorParallel& tensor);
};

struct BlockSaved {
  NormSaved attention_norm;
  std::vector<AttentionSaved> attention;
  NormSaved mlp_norm;
  std::vector<MlpSaved> mlp;
  // Between the halves of backward: gradients of gains that the first half computes along the way,
  // [C] or [D] each, f32.
  Tensor gains;  // all of them, flat
  NormWeights dattention_norm, dmlp_norm;
  HeadNormWeights dhead_norm;
  struct Shape {
    int64_t rows, context;
    Dtype dtype, residual;
    bool halves = false;
    Recompute recompute = Recompute::none;
  };
  Recompute recompute = Recompute::none;
  // `config` is one shard's. Recomputed activations go to `scratch`, which all blocks share.
  void take(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape, const BlockSaved& scratch);
  void take_scratch(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape);
};

// The halves of backward. The second may follow at any later time: it reads only the saved
// activations and dy.
enum class Backward { whole, input, weight };

// Returns the stream after the block. `delta` [own, C] is memory for the pending addend; it may be
// in.delta.
Residual block_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta);
// Takes dy [own, C], the gradient of the stream after the block; saved.attention_norm.sum becomes
// the gradient of the stream before it. Adds to the weights' gradients.
void block_backward(Pass& pass, const Trained<BlockWeights>& block, const BlockSaved& saved, Tensor dy, Backward which);

}  // namespace trireme
