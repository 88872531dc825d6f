// Mixture: what a run trains on: one corpus, or several sources of which each has its share of the samples (mixture_schedule.h).
//
// Sample g of a run is sample permuted(key, n / samples, n % samples) of its source, n being the number of the source's samples
// before it: each source is read whole, in another order, again and again, at its own pace. No index is stored.
#pragma once

#include <span>
#include <vector>

#include "data/loader/corpus.h"
#include "data/loader/mixture_schedule.h"

namespace trireme {

class Mixture {
 public:
  // The corpora outlive the mixture; they have one context. DataError when they were made with different tokenizers.
  Mixture(std::span<const Corpus> sources, const std::vector<double>& weights);
  Mixture(const Corpus& corpus) : Mixture(std::span(&corpus, 1), {1}) {}  // a corpus is a mixture of itself

  int64_t context() const { return sources_.front().context(); }
  int64_t tokens() const;                  // of all sources
  int64_t samples() const;                 // of all sources
  bool padded() const { return padded_; }  // some sample may have fewer targets than its context

  struct Sample {
    size_t source;
    int64_t sample;  // of the corpus
    int64_t epoch;   // of the source
  };
  Sample at(int64_t g, uint64_t seed) const;
  int64_t number_of(const Sample& sample, uint64_t seed) const;  // at() backwards
  const Corpus& source(size_t i) const { return sources_[i]; }
  std::span<const Corpus> sources() const { return sources_; }
  const MixtureSchedule& turns() const { return turns_; }

 private:
  std::span<const Corpus> sources_;
  MixtureSchedule turns_;
  bool padded_ = false;
};

}  // namespace trireme
