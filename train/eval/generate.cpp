#include "train/eval/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace trireme {

namespace {

struct LessLikely {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a != of_b ? of_a < of_b : a > b;
  }
};

// exp((a logit - the highest) / temperature). In f32, like the logits: double takes three times as long.
class Weights {
 public:
  Weights(std::span<const float> logits, double temperature) : best_(std::ranges::max(logits)), temperature_(temperature) {}
  double operator()(float logit) const { return std::exp(static_cast<float>((logit - best_) / temperature_)); }

 private:
  double best_, temperature_;
};

// Tokens from the most likely down, each with its weight. They come off a heap as they are asked for: a choice looks at few, and
// sorting all can take longer than computing their logits.
class MostLikely {
 public:
  MostLikely(std::span<const float> logits, double temperature)
      : logits_(logits), weight_(logits, temperature), heap_(logits.size()) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::ranges::make_heap(heap_, LessLikely{logits_});
  }

  size_t count() const { return logits_.size(); }
  int32_t token(size_t i) { return reach(i), tokens_[i]; }
  double weight(size_t i) { return reach(i), weights_[i]; }
  double total(size_t count) {  // of the first so many
    double sum = 0;
    if (count == logits_.size())
      for (const float logit : logits_) sum += weight_(logit);
    else
      for (size_t i = 0; i < count; ++i) sum += weight(i);
    return sum;
  }

 private:
  void reach(size_t i) {
    while (tokens_.size() <= i) {
      std::ranges::pop_heap(heap_, LessLikely{logits_});
      tokens_.push_back(heap_.back());
      heap_.pop_back();
      weights_.push_back(weight_(logits_[static_cast<size_t>(tokens_.back())]));
    }
  }

  std::span<const float> logits_;
  Weights weight_;
  std::vector<int32_t> heap_, tokens_;  // those not yet taken, those taken
  std::vector<double> weights_;
};

// How many of the first `count` tokens reach so much weight together, at least one.
size_t count_that_reach(MostLikely& tokens, size_t count, double wanted) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i)
    if ((sum += tokens.weight(i)) >= wanted) return i + 1;
  return count;
}

// Token i with the probability of its weight, for `drawn` in [0, 1). What rounding leaves over goes to the most likely.
int32_t draw(const std::vector<double>& weights, double drawn) {
  double left = drawn * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) < 0) return static_cast<int32_t>(i);
  return static_cast<int32_t>(std::ranges::max_element(weights) - weights.begin());
}

}  // namespace

int32_t choose_token(std::span<const float> logits, const Sampling& sampling, int64_t index) {
  logits = logits.first(std::min(logits.size(), static_cast<size_t>(sampling.vocab)));
  require(!logits.empty(), text("no token to choose from"));
  require(std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }),
          text("the model's logits are not finite, so no token can be chosen: it has diverged; try an earlier --step"));
  if (sampling.temperature <= 0) return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());

  const double drawn = unit(philox64(stream_key(sampling.seed, "sample"), static_cast<uint64_t>(index)));
  if (sampling.top_k == 0 && sampling.top_p == 1) {
    std::vector<double> weights(logits.size());
    std::ranges::transform(logits, weights.begin(), Weights(logits, sampling.temperature));
    return draw(weights, drawn);
  }
  MostLikely tokens(logits, sampling.temperature);
  size_t kept = sampling.top_k > 0 ? std::min(tokens.count(), static_cast<size_t>(sampling.top_k)) : tokens.count();
  if (sampling.top_p < 1) kept = count_that_reach(tokens, kept, sampling.top_p * tokens.total(kept));
  std::vector<double> weights(kept);
  for (size_t i = 0; i < kept; ++i) weights[i] = tokens.weight(i);
  return tokens.token(static_cast<size_t>(draw(weights, drawn)));
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

namespace {

class Generation {
 public:
  Generation(Decoder& decoder, Stream& stream, std::span<const GenerationRequest> requests, const GenerationSink& sink)
      : decoder_(decoder), stream_(stream), requests_(requests), sink_(sink), texts_(static_cast<size_t>(decoder.sequences())) {}

  void run() {
    do {
      for (int64_t i = 0; i < std::ssize(texts_); ++i)
        while (!text_of(i).running && next_ < requests_.size()) begin(i);
    } while (advance());
  }

 private:
  // Content of a sequence of the decoder, and the last token drawn, which it does not hold yet.
  struct Text {
    size_t request = 0;
    std::vector<int32_t> tokens{};
    int64_t drawn = 0;
    bool running = false;
  };

  Text& text_of(int64_t sequence) { return texts_[static_cast<size_t>(sequence)]; }

  // Takes the next request, and reads nothing yet.
  void take(int64_t sequence) {
    const GenerationRequest& request = requests_[next_];
    require(!request.prompt.empty(), text("an empty prompt"));
    Text& taken = text_of(sequence) = {.request = next_++, .tokens = request.prompt, .running = true};
    cut_to_context(taken.tokens, decoder_.capacity(), request.sampling.tokens);
  }

  // Begins the next request, and those after it that have the same prompt, which is read once.
  void begin(int64_t sequence) {
    take(sequence);
    decoder_.clear(sequence);
    decoder_.feed(stream_, text_of(sequence).tokens, sequence);
    draw(sequence, 0);
    for (int64_t other = sequence + 1; other < std::ssize(texts_) && next_ < requests_.size(); ++other) {
      if (text_of(other).running || !same_prompt(requests_[next_], requests_[text_of(sequence).request])) continue;
      take(other);
      decoder_.copy(stream_, sequence, other);
      draw(other, 0);
    }
  }

  static bool same_prompt(const GenerationRequest& a, const GenerationRequest& b) {
    return a.prompt == b.prompt && a.sampling.tokens == b.sampling.tokens;
  }

  // Begins a full sequence again with its newer half.
  void read_again(int64_t sequence) {
    std::vector<int32_t>& tokens = text_of(sequence).tokens;
    tokens.erase(tokens.begin(), tokens.end() - std::max<int64_t>(1, decoder_.capacity() / 2));
    decoder_.clear(sequence);
    decoder_.feed(stream_, tokens, sequence);
    draw(sequence, 0);
  }

  // Draws from logits(row).
  void draw(int64_t sequence, int64_t row) {
    Text& t = text_of(sequence);
    const Sampling& sampling = requests_[t.request].sampling;
    const Tensor logits = decoder_.logits(row);
    const int32_t token = choose_token({logits.as<float>(), static_cast<size_t>(logits.cols())}, sampling, t.drawn++);
    t.tokens.push_back(token);
    t.running = sink_.token(t.request, token) && t.drawn < sampling.tokens;
    if (!t.running) sink_.done(t.request);
  }

  // One more token for each text; false: all have ended.
  bool advance() {
    std::vector<Decoder::Next> next;
    std::vector<int64_t> full;
    for (int64_t i = 0; i < std::ssize(texts_); ++i) {
      if (!text_of(i).running) continue;
      if (decoder_.length(i) == decoder_.capacity())
        full.push_back(i);
      else
        next.push_back({.sequence = i, .token = text_of(i).tokens.back()});
    }
    if (!next.empty()) decoder_.step(stream_, next);
    for (size_t row = 0; row < next.size(); ++row) draw(next[row].sequence, static_cast<int64_t>(row));
    for (const int64_t sequence : full) read_again(sequence);
    return !next.empty() || !full.empty();
  }

  Decoder& decoder_;
  Stream& stream_;
  std::span<const GenerationRequest> requests_;
  const GenerationSink& sink_;
  std::vector<Text> texts_;  // by sequence
  size_t next_ = 0;          // request
};

}  // namespace

void generate(Decoder& decoder, Stream& stream, std::span<const GenerationRequest> requests, const GenerationSink& sink) {
  Generation(decoder, stream, requests, sink).run();
}

}  // namespace trireme
