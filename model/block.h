// One transformer block: stream += attention(norm(stream)); stream += mlp(norm(stream)).
#pragma once

#include "model/attention.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace trireme {

// Which halves of a layer a block has. At the ends of a ModelChunk it may be one.
struct Halves {
  bool attention = true, mlp = true;
};

// Weights of a block: first those shared by all shards, then this rank's shards.
struct BlockWeights {
  NormWeights attention_norm, mlp_norm;
  HeadNormWeights head_norm;
  std::vector<AttentionWeights> attention;
  std::vector<MlpWeights> mlp;
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const TensorParallel& tensor,
               Halves halves = {});
};

struct BlockSaved {
  NormSaved attention_norm;
  std::vector<AttentionSaved> attention;
  NormSaved mlp_norm;
  std::vector<MlpSaved> mlp;
  // Between the halves of backward: gradients of gains that the first half computes along the way,
  // [C] or [D] each, f32.
  Tensor attention_gains, mlp_gains;  // all of each half, flat
  NormWeights dattention_norm, dmlp_norm;
  HeadNormWeights dhead_norm;
  struct Shape {
    int64_t rows, context;
    Dtype dtype, residual;
    bool halves = false;
    Recompute recompute = Recompute::none;
    bool keeps_stream = true;  // before each half
  };
  Recompute recompute = Recompute::none;
  // Memory of both halves, or of one. `config` is one shard's. Recomputed activations go to `scratch`, which all blocks share.
  // Not with recomputation of whole layers, which keeps only the stream before a block.
  void take(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape, const BlockSaved& scratch);
  void take_attention(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape,
                      const BlockSaved& scratch);
  void take_mlp(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape,
                const BlockSaved& scratch);
  // Takes over the memory of the other's MLP.
  void join_mlp(const BlockSaved& other);
  void take_scratch(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape);
  // Memory for what the first half of backward computes again and the second reads.
  void take_again(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const Shape& shape);
  // The same activations, with those that are computed again in this memory.
  BlockSaved with(const BlockSaved& again) const;
};

// The halves of backward. The second may follow at any later time: it reads only the saved
// activations and dy.
enum class Backward { whole, input, weight };

// Returns the stream after the block, or after one half of it. `delta` [own, C] is memory for the pending
// addend; it may be in.delta.
Residual attention_half_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta);
Residual mlp_half_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta);
Residual block_forward(Pass& pass, const BlockWeights& weights, const BlockSaved& saved, const Residual& in, Tensor delta);
// Take dy [own, C], the gradient of the stream after a half, and return that of the stream before it,
// which takes the place of the stream. Add to the weights' gradients. The MLP's comes first.
Tensor mlp_half_backward(Pass& pass, const Trained<BlockWeights>& block, const BlockSaved& saved, Tensor dy, Backward which);
Tensor attention_half_backward(Pass& pass, const Trained<BlockWeights>& block, const BlockSaved& saved, Tensor dy, Backward which);

}  // namespace trireme
