#include "data/mixture.h"

#include "data/order.h"
#include "kernels/check.h"

namespace trireme {

Mixture::Mixture(std::span<const Corpus> sources, const std::vector<double>& weights) : sources_(sources), turns_(weights) {
  require(sources.size() == weights.size(), text(weights.size(), " weights for ", sources.size(), " sources"));
  for (const Corpus& corpus : sources) {
    require(corpus.context() == context(), text("a source of context ", corpus.context(), " in a mixture of ", context()));
    if (corpus.fingerprint() != sources.front().fingerprint() || corpus.vocab() != sources.front().vocab())
      throw DataError(corpus.shards().front().path() + ": was made with tokenizer " + corpus.fingerprint() + ", but " +
                      sources.front().shards().front().path() + " with " + sources.front().fingerprint());
    padded_ |= corpus.targets() < corpus.samples() * corpus.context();
  }
}

int64_t Mixture::tokens() const {
  int64_t sum = 0;
  for (const Corpus& corpus : sources_) sum += corpus.tokens();
  return sum;
}

int64_t Mixture::samples() const {
  int64_t sum = 0;
  for (const Corpus& corpus : sources_) sum += corpus.samples();
  return sum;
}

Mixture::Sample Mixture::at(int64_t g, uint64_t seed) const {
  const auto [source, number] = turns_.at(g);
  const int64_t samples = sources_[source].samples(), epoch = number / samples;
  const uint64_t key = source == 0 ? seed : stream_key(seed, "source " + std::to_string(source));
  return {.source = source, .sample = permuted(key, epoch, number % samples, samples), .epoch = epoch};
}

}  // namespace trireme
