// Generation of text: the choice of the next token, and the loop around the decoder.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/decoder.h"

namespace trireme {

struct Sampling {
  int64_t tokens = 200;      // at most
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // sample from the k most likely tokens; 0: all
  double top_p = 1;          // sample from the fewest most likely tokens that reach this probability
  uint64_t seed = 1;
  int64_t vocab = 0;  // tokens the tokenizer knows; entries of the model beyond them are never chosen
};

// Chooses one token from logits [V], of which the first sampling.vocab count. A seed and an `index` always draw the same number.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, int64_t index);

// Cuts a text to its newest tokens that leave room in the context for `output` more. If that is less
// than half of the context, the output will not fit anyway: then only a text that exceeds the context
// is cut, to half of it. Returns whether it cut.
bool cut_to_context(std::vector<int32_t>& tokens, int64_t context, int64_t output);

enum class GenerationEnd { stopped, tokens, context };  // by `emit`, by sampling.tokens, by a full context

// Draws tokens after those that the decoder holds, and hands each to `emit`, which stops by returning false. `drawn` counts the
// tokens that this seed has drawn before, and those drawn now. The decoder holds all of them but the last.
GenerationEnd draw_tokens(Decoder& decoder, Stream& stream, const Sampling& sampling, int64_t& drawn,
                          const std::function<bool(int32_t)>& emit);

// A text to continue: its tokens (at least one), cut as by cut_to_context(), and how.
struct GenerationRequest {
  std::vector<int32_t> prompt;
  Sampling sampling;
};

// Takes what is generated; requests by their place in the list.
struct GenerationSink {
  std::function<bool(size_t request, int32_t token)> token;  // false stops the request
  std::function<void(size_t request)> done;                  // no more tokens come
};

// Continues all requests, as many at a time as the decoder has sequences; they begin in the order of the list. Each gets the tokens
// that it gets alone. A text that fills the context continues from its newer half.
void generate(Decoder& decoder, Stream& stream, std::span<const GenerationRequest> requests, const GenerationSink& sink);

}  // namespace trireme
