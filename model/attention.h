// Causal self-attention: one fused projection to queries, keys and values, RoPE (llama), grouped heads, projection back.
// H query heads, K key-value heads of size D, of one shard: the shards' results add up.
#pragma once

#include "model/linear.h"

namespace trireme {

struct AttentionWeights {
  Tensor qkv;       // [(H + 2 K) D, C]: rows of q, then k, then v
  Tensor qkv_bias;  // [(H + 2 K) D], gpt2 and qkv_bias only
  Tensor out;       // [C, H D]
  Tensor out_bias;  // [C], gpt2's first shard only
  // config: of the whole model.
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const Shard& shard);
};

// The gains of QK-norm, which all heads and so all shards share.
struct HeadNormWeights {
  Tensor q_gain, k_gain;  // [D], qk_norm only
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config);
};

struct AttentionSaved {
  Tensor q, k, v;               // [N, H, D], [N, K, D], [N, K, D] as attention reads them
  Tensor dqkv;                  // [N, (H + 2 K) D], the memory of the three: since backward the gradient of the projection
  Tensor q_raw, k_raw;          // before the norm, qk_norm only
  Tensor q_inverse, k_inverse;  // [N H], [N K] f32, qk_norm only
  Tensor mixed;                 // [N, H D] what attention made
  Tensor lse;                   // [B, H, T] f32
  // Keys and values to attend to, [1, S, K, D] each, where they are more than this pass's own: decoding with a cache.
  Tensor cached_k, cached_v;
  void take(Arena& arena, const ModelConfig& config, int64_t rows, int64_t context, Dtype dtype);
};

// y [N, C] = attention(x [N, C]).
void attention_forward(Pass& pass, const AttentionWeights& weights, const HeadNormWeights& norm, const AttentionSaved& saved,
                       const PartForward& rows);
// What the gradient of the input can keep for those of the weights, in the same pass.
struct AttentionKept {
  KeptGradient out, qkv;
  static AttentionKept take(Pass& pass);
};
// dx [N, C] from dy [N, C]; adds to the gradients of the norm.
void attention_backward_input(Pass& pass, const AttentionWeights& weights, const Trained<HeadNormWeights>& norm,
                              const AttentionSaved& saved, const PartBackwardInput<AttentionKept>& rows);
// Adds to gradients, any time after that; with `kept`, in the same pass.
void attention_backward_weight(Pass& pass, AttentionWeights& gradients, const AttentionSaved& saved,
                               const PartBackwardWeight<AttentionKept>& rows);

}  // namespace trireme
