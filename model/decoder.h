// Decoder: the model for generation, with weights and a cache of keys and values, without
// gradients. One sequence at a time.
#pragma once

#include <algorithm>
#include <span>

#include "model/stage.h"

namespace trireme {

struct DecoderDtypes {
  Dtype step;             // of activations and, unless they are in 8 bits, of matrices
  Dtype residual = step;  // of the residual stream
  bool int8 = false;      // products' weights in 8 bits; the embedding's rows stay in the step's dtype
};

class Decoder {
 public:
  // Uses arenas.weights, .activations (the cache) and .temporaries. On Place::none, feed(context
  // tokens) measures the sizes.
  Decoder(const ModelConfig& config, const DecoderDtypes& dtypes, Arenas& arenas, Stream& stream);

  // Fill these from a checkpoint before the first feed. One of i8 has its scales in scales_of(). A tied table whose products are in
  // 8 bits is listed twice, once for each.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  int64_t length() const { return length_; }  // tokens in the cache
  int64_t capacity() const { return config_.context; }
  void clear() { length_ = 0; }
  // Forgets all but the first `length` tokens. logits() are void until the next feed.
  void rewind(int64_t length) { length_ = std::min(length, length_); }

  // Appends tokens (each in [0, vocab); at most capacity() - length() of them, else Error) and computes logits() after the last.
  void feed(Stream& stream, std::span<const int32_t> tokens);
  Tensor logits() const { return logits_.view({logits_.size()}).slice(0, config_.vocab).view({1, config_.vocab}); }  // [1, V] f32

 private:
  void take_weights(Arena& arena);
  void feed_chunk(Stream& stream, std::span<const int32_t> tokens);

  ModelConfig config_;
  DecoderDtypes dtypes_;
  Arena& temporaries_;
  StageWeights weights_;
  std::vector<Parameter> parameters_;
  Tensor rope_, tokens_, positions_;  // [context, D/2, 2], [context] i32, [context] i32
  std::vector<Tensor> k_, v_;         // for each layer, [context, K, D]
  Tensor logits_;
  int64_t length_ = 0;
};

}  // namespace trireme
