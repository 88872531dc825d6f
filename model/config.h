// The `model:` section of a config: the transformer's architecture and sizes.
#pragma once

#include "base/key.h"

namespace trireme {

enum class Family { gpt2, llama };

template <>
struct Names<Family> {
  static constexpr std::array<std::string_view, 2> words{"gpt2", "llama"};
};

enum class RopeScaling { none, llama3 };

template <>
struct Names<RopeScaling> {
  static constexpr std::array<std::string_view, 2> words{"none", "llama3"};
};

// Activations that backward recomputes from the saved stream. `selective`: results of norms and
// activation functions, at almost no cost. `full`: everything in a block but its input, at almost
// the cost of another forward (Chen et al., "Training deep nets with sublinear memory cost", 2016).
// Gradients have the same bits.
enum class Recompute { none, selective, full };

template <>
struct Names<Recompute> {
  static constexpr std::array<std::string_view, 3> words{"none", "selective", "full"};
};

struct ModelConfig {
  Family family = Family::llama;
  int64_t layers = 6, width = 256, heads = 4, kv_heads = 0, head_size = 0, ffn = 0, vocab = 4096, context = 512;
  bool tied = true;
  double theta = 10000;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 8, rope_low_factor = 1, rope_high_factor = 4;
  int64_t rope_original_context = 8192;
  bool qk_norm = false, qkv_bias = false;
  int64_t window = 0;
  double norm_eps = 1e-5, init_std = 0.02, z_loss = 0;
  bool document_mask = true, restart_positions = false;
  // Not a key: a shard's rows of the vocabulary are rounded up to this. On a GPU, rows of logits then
  // begin at multiples of 16 bytes. The added rows are no tokens and always zero.
  int64_t vocab_multiple = 1;
  bool large_chunks = false;  // the classifier takes thousands of rows at once, which fill a GPU

  void visit(auto& keys) {
    keys("family", family, "gpt2: learned positions, LayerNorm, GELU, biases; llama: RoPE, RMSNorm, SwiGLU (also Mistral, Qwen)",
         identity());
    keys("layers", layers, "transformer blocks", between(1, 100000).identity());
    keys("width", width, "width of the residual stream", between(1, 1 << 24).identity());
    keys("heads", heads, "query heads", between(1, 1 << 20).identity());
    keys("kv_heads", kv_heads, "key-value heads; 0: same as heads", between(0, 1 << 20).identity());
    keys("head_size", head_size, "size of a head; 0: width / heads", between(0, 512).identity());
    keys("ffn", ffn, "hidden size of the MLP; 0: 4 width (gpt2) or 8/3 width rounded up to 64 (llama)",
         between(0, 1 << 26).identity());
    keys("vocab", vocab, "rows of the embedding, at least the tokenizer's entries", between(2, 2147483647).identity());
    keys("context", context, "tokens of a training sequence", between(1, 2147483647).identity());
    keys("tied", tied, "share the embedding's weight with the head", identity());
    keys("theta", theta, "base of RoPE's wavelengths (llama)", above(0).identity());
    keys("rope_scaling", rope_scaling, "llama3: Llama 3.1's scaling of long wavelengths", identity());
    keys("rope_factor", rope_factor, "llama3 scaling: factor by which the longest wavelengths grow", at_least(1).identity());
    keys("rope_low_factor", rope_low_factor, "llama3 scaling: wavelengths above original / low grow by the whole factor",
         above(0).identity());
    keys("rope_high_factor", rope_high_factor, "llama3 scaling: wavelengths below original / high do not change",
         above(0).identity());
    keys("rope_original_context", rope_original_context, "llama3 scaling: context before the extension", at_least(1).identity());
    keys("qk_norm", qk_norm, "RMSNorm of each query and key head before RoPE (Qwen3)", identity());
    keys("qkv_bias", qkv_bias, "bias on the query, key and value projections (Qwen2); gpt2 always has it", identity());
    keys("window", window, "sliding window: keys that a query sees, itself included; 0: all", between(0, 2147483647).identity());
    keys("norm_eps", norm_eps, "added to the variance in every norm", at_least(0).identity());
    keys("init_std", init_std, "standard deviation of initial weights; projections back to the stream use std / sqrt(2 layers)",
         above(0).identity());
    keys("z_loss", z_loss, "weight of the squared log normaliser in the loss", at_least(0).identity());
    keys("document_mask", document_mask, "restrict attention to the token's own document", identity());
    keys("restart_positions", restart_positions, "count positions from each document's start instead of the sequence's",
         identity());
  }

  // Fills in defaults that depend on other keys. Call it once, after reading.
  void resolve() {
    if (kv_heads == 0) kv_heads = heads;
    if (head_size == 0) head_size = width / heads;
    if (ffn == 0) ffn = family == Family::gpt2 ? 4 * width : (8 * width / 3 + 63) / 64 * 64;
  }

  // Reports keys that contradict each other, as (key, message): `report("kv_heads", "must divide
  // model.heads = 8")`.
  void check(auto&& report) const {
    if (heads % (kv_heads > 0 ? kv_heads : 1) != 0) report("kv_heads", "must divide model.heads = " + std::to_string(heads));
    if (head_size == 0) {
      report("width", "must be at least model.heads = " + std::to_string(heads));
    } else if (head_size == width / heads && width % heads != 0) {
      report("width", "must be a multiple of model.heads = " + std::to_string(heads));
    } else {
      if (head_size > 512) report("head_size", "must be at most 512; by default it is model.width / model.heads");
      if (family == Family::llama && head_size % 2 != 0)
        report("head_size", "must be even, since RoPE turns pairs; by default it is model.width / model.heads");
    }
    if (family == Family::gpt2 && qk_norm) report("qk_norm", "needs model.family = llama");
    if (family == Family::gpt2 && rope_scaling != RopeScaling::none) report("rope_scaling", "needs model.family = llama");
    if (family == Family::gpt2 && kv_heads != heads) report("kv_heads", "must be model.heads with model.family = gpt2");
    if (rope_low_factor >= rope_high_factor) report("rope_low_factor", "must be below model.rope_high_factor");
  }

  int64_t q_width() const { return heads * head_size; }
  int64_t kv_width() const { return kv_heads * head_size; }
};

}  // namespace trireme
