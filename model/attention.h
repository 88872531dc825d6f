// Causal self-attention: one fused projection to queries, keys and values, RoPE (llama), grouped
// heads, and the projection back.
// One shard has H query heads and K key-value heads of size D; the results of the shards are
// summed.
#pragma once

#include <span>

#include "model/linear.h"
#include "model/shard_sum.h"

namespace trireme {

struct AttentionWeights {
  Tensor qkv;       // [(H + 2 K) D, C]: rows of q, then k, then v
  Tensor qkv_bias;  // [(H + 2 K) D], gpt2 and qkv_bias only
  Tensor out;       // [C, H D]
  Tensor out_bias;  // [C], gpt2's first shard only
  RoundedWeight rounded_qkv, rounded_out;
  // `config` is the whole model's.
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const Shard& shard);
  void take_rounded(Arena& arena) { rounded_qkv.take(arena, qkv), rounded_out.take(arena, out); }
};

// The gains of QK-norm, shared by all heads and thus all shards.
struct HeadNormWeights {
  Tensor q_gain, k_gain;  // [D], qk_norm only
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config);
};

// Memory for the keys and values of a sequence, those of this pass last: [S, K, D] each.
struct CachedHeads {
  Tensor k, v;
};

struct AttentionSaved {
  // Memory that attention reads: the projection's result with rotated heads or, with QK-norm or cached keys, separate heads. They
  // are the same memory. The projection's gradient replaces it in backward, unless that keeps it elsewhere.
  Tensor qkv;                   // [N, (H + 2 K) D]: a row is all of q, then of k, then of v
  Tensor q, k, v;               // [N, H, D], [N, K, D], [N, K, D]
  Tensor q_raw, k_raw;          // before the norm, qk_norm only
  Tensor q_inverse, k_inverse;  // [N H], [N K] f32, qk_norm only
  Tensor mixed;                 // [N, H D] attention's result
  Tensor lse;                   // [B, H, T] f32
  // In generation: for each row of the batch, what it attends to.
  std::span<const CachedHeads> cached;
  void take(Arena& arena, const ModelConfig& config, int64_t rows, int64_t context, Dtype dtype);
};

// y [N, C] = attention(x [N, C]).
void attention_forward(Pass& pass, const AttentionWeights& weights, const HeadNormWeights& norm, const AttentionSaved& saved,
                       const ShardForward& rows);
// Values that the backward of the input can keep for the backward of the weights in the same pass.
struct AttentionKept {
  KeptGradient out, qkv;
  Tensor dqkv{};  // [N, (H + 2 K) D], the projection's gradient; absent: it is in AttentionSaved::qkv
  static AttentionKept take(Pass& pass);
};
// dx [N, C] from dy [N, C]; adds to the gradients of the norm.
void attention_backward_input(Pass& pass, const AttentionWeights& weights, const Trained<HeadNormWeights>& norm,
                              const AttentionSaved& saved, const ShardBackwardInput<AttentionKept>& rows);
// Adds to gradients, at any time after the backward of the input; with `kept`, in the same pass.
void attention_backward_weight(Pass& pass, AttentionWeights& gradients, const AttentionSaved& saved,
                               const PartBackwardWeight<AttentionKept>& rows);

}  // namespace trireme
