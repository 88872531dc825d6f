// Text from a model: the choice of the next token, and the loop around the decoder.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/decoder.h"

namespace trireme {

struct Sampling {
  int64_t tokens = 200;      // at most
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // 0: all
  double top_p = 1;          // the smallest set of likeliest tokens with at least this probability
  uint64_t seed = 1;
  int64_t vocab = 0;  // tokens the tokenizer knows; entries of the model beyond them are never chosen
};

// One token from logits [V]: the first sampling.vocab of them. Token number `index` of a seed is always drawn alike.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, int64_t index);

// Feeds the prompt (at least one token) and hands each new token to `emit` until it returns false or sampling.tokens are made. When
// the context is full, the newer half of the text is fed anew.
void generate(Decoder& decoder, Stream& stream, std::vector<int32_t> prompt, const Sampling& sampling,
              const std::function<bool(int32_t)>& emit);

}  // namespace trireme
