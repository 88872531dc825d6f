#include "data/loader/mixture.h"

#include "base/error.h"
#include "data/loader/shuffle.h"

namespace trireme {

Mixture::Mixture(std::span<const Corpus> sources, const std::vector<double>& weights) : sources_(sources), turns_(weights) {
  require(sources.size() == weights.size(), text(weights.size(), " weights for ", sources.size(), " sources"));
  for (const Corpus& corpus : sources) {
    require(corpus.context() == context(), text("a source of context ", corpus.context(), " in a mixture of ", context()));
    if (corpus.fingerprint() != sources.front().fingerprint() || corpus.vocab() != sources.front().vocab())
      throw DataError(corpus.shards().front().path() + ": was made with tokenizer " + corpus.fingerprint() + ", but " +
                      sources.front().shards().front().path() + " with " + sources.front().fingerprint());
    padded_ |= corpus.padded();
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

namespace {

uint64_t order_key(size_t source, uint64_t seed) {
  return source == 0 ? seed : stream_key(seed, "source " + std::to_string(source));
}

}  // namespace

int64_t Mixture::number_of(const Sample& sample, uint64_t seed) const {
  const int64_t samples = sources_[sample.source].samples();
  const int64_t index = index_of(order_key(sample.source, seed), sample.epoch, sample.sample, samples);
  return turns_.sample_of({.source = sample.source, .number = sample.epoch * samples + index});
}

Mixture::Sample Mixture::at(int64_t g, uint64_t seed) const {
  const auto [source, number] = turns_.at(g);
  const int64_t samples = sources_[source].samples(), epoch = number / samples;
  return {.source = source, .sample = permuted(order_key(source, seed), epoch, number % samples, samples), .epoch = epoch};
}

}  // namespace trireme
