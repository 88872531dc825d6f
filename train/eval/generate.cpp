#include "train/eval/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace trireme {

int32_t choose_token(std::span<const float> logits, const Sampling& sampling, int64_t index) {
  const auto vocab = std::min(logits.size(), static_cast<size_t>(sampling.vocab));
  require(vocab > 0, text("no token to choose from"));
  std::vector<int32_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  const auto more_likely = [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] != logits[static_cast<size_t>(b)]
               ? logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]
               : a < b;
  };
  if (sampling.temperature <= 0) return *std::min_element(order.begin(), order.end(), more_likely);

  std::sort(order.begin(), order.end(), more_likely);
  if (sampling.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(sampling.top_k)));
  std::vector<double> weight(order.size());
  const double best = logits[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < order.size(); ++i)
    weight[i] = std::exp((logits[static_cast<size_t>(order[i])] - best) / sampling.temperature);
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  size_t kept = 0;
  for (double sum = 0; kept < order.size() && sum < sampling.top_p * total;) sum += weight[kept++];
  kept = std::max<size_t>(1, kept);
  total = std::accumulate(weight.begin(), weight.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  double left = unit(philox64(stream_key(sampling.seed, "sample"), static_cast<uint64_t>(index))) * total;
  for (size_t i = 0; i + 1 < kept; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  return order[kept - 1];
}

bool cut_to_context(std::vector<int32_t>& tokens, int64_t context, int64_t output) {
  const int64_t size = std::ssize(tokens), room = context - (output - 1), half = std::max<int64_t>(1, context / 2);
  if (size <= std::max(room, half) || (room < half && size <= context)) return false;
  tokens.erase(tokens.begin(), tokens.end() - std::max(room, half));
  return true;
}

GenerationEnd draw_tokens(Decoder& decoder, Stream& stream, const Sampling& sampling, int64_t& drawn,
                          const std::function<bool(int32_t)>& emit) {
  for (int64_t made = 1;; ++made) {
    const std::span logits(decoder.logits().as<float>(), static_cast<size_t>(decoder.logits().cols()));
    const int32_t token = choose_token(logits, sampling, drawn++);
    if (!emit(token)) return GenerationEnd::stopped;
    if (made >= sampling.tokens) return GenerationEnd::tokens;
    if (decoder.length() == decoder.capacity()) return GenerationEnd::context;
    decoder.feed(stream, {&token, 1});
  }
}

void generate(Decoder& decoder, Stream& stream, std::vector<int32_t> tokens, const Sampling& sampling,
              const std::function<bool(int32_t)>& emit) {
  require(!tokens.empty(), text("an empty prompt"));
  Sampling left = sampling;
  cut_to_context(tokens, decoder.capacity(), sampling.tokens);
  for (int64_t drawn = 0; left.tokens > 0; left.tokens = sampling.tokens - drawn) {
    decoder.clear();
    if (drawn > 0) tokens.erase(tokens.begin(), tokens.end() - std::max<int64_t>(1, decoder.capacity() / 2));
    decoder.feed(stream, tokens);
    const auto keep = [&](int32_t token) {
      tokens.push_back(token);
      return emit(token);
    };
    if (draw_tokens(decoder, stream, left, drawn, keep) != GenerationEnd::context) return;
  }
}

}  // namespace trireme
