// Decoder: the model for generation, with weights and a cache of keys and values, without
// gradients. Of one sequence or of several, whose weights are read once for all.
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

struct DecoderRoom {
  int64_t sequences = 1, tokens = 0;  // in the cache: sequences, and tokens of each; 0 or more than the context: the context
};

class Decoder {
 public:
  // The next token of a sequence.
  struct Next {
    int64_t sequence;
    int32_t token;
  };

  // Uses arenas.weights, .activations (the cache) and .temporaries. On Place::none, measure() finds the sizes.
  Decoder(const ModelConfig& config, const DecoderDtypes& dtypes, Arenas& arenas, Stream& stream, const DecoderRoom& room = {});

  // Fill these from a checkpoint before the first feed. One of i8 has its scales in scales_of(). A tied table whose products are in
  // 8 bits is listed twice, once for each.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  int64_t sequences() const { return std::ssize(lengths_); }
  int64_t capacity() const { return capacity_; }                                 // tokens of a sequence
  int64_t length(int64_t sequence = 0) const { return lengths_[at(sequence)]; }  // tokens in the cache
  void clear(int64_t sequence = 0) { lengths_[at(sequence)] = 0; }
  // Forgets all but the first `length` tokens. logits() are void until the next feed.
  void rewind(int64_t length) { lengths_[0] = std::min(length, lengths_[0]); }

  // Appends tokens (each in [0, vocab); at most capacity() - length() of them, else Error) and computes logits() after the last.
  void feed(Stream& stream, std::span<const int32_t> tokens, int64_t sequence = 0);
  // Gives a sequence the tokens of another. logits() stay.
  void copy(Stream& stream, int64_t from, int64_t to);
  // Appends a token to each of some sequences, no two the same, and computes logits(i) of the i-th. They have the bits that feed()
  // gives one alone.
  void step(Stream& stream, std::span<const Next> next);
  Tensor logits(int64_t i = 0) const;  // [1, V] f32, of the last call
  // Passes of all sizes that occur, for Place::none.
  void measure(Stream& stream);

 private:
  static size_t at(int64_t sequence) { return static_cast<size_t>(sequence); }
  void take_weights(Arena& arena);
  void check_room(int64_t sequence, int64_t tokens) const;
  Microbatch take_batch(std::span<const int64_t> sequences, std::span<const int32_t> tokens);
  CachedHeads cached_of(size_t layer, int64_t sequence) const;
  Tensor forward(Pass& pass, std::span<const int64_t> sequences);
  void advance(Stream& stream, std::span<const int64_t> sequences, std::span<const int32_t> tokens, const Tensor& logits);

  ModelConfig config_;
  DecoderDtypes dtypes_;
  Arena& temporaries_;
  int64_t capacity_;
  StageWeights weights_;
  std::vector<Parameter> parameters_;
  Tensor rope_, tokens_, positions_;  // [context, D/2, 2]; [N] i32 of a pass
  std::vector<Tensor> k_, v_;         // for each layer, [sequences capacity, K, D]
  Tensor logits_;                     // [sequences, V or more]
  std::vector<int64_t> lengths_;
};

}  // namespace trireme
