// Turns: which source of a mixture each sample of a run comes from, and which of the source's own it is. A pure function of the
// sample's number.
//
// Of the first n samples each source of weight w has w n, give or take 1 - 1/(2k - 2) of a sample with k sources (Tijdeman, "The
// chairman assignment problem", 1980); so any window of samples has its share to within twice that: one sample, of two sources.
// The order repeats after at most kLongest samples: after few where the weights are such shares (10, of 0.7 and 0.3), so that each
// window of so many is exact. Other weights are taken to the nearest 65536th.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme {

class Turns {
 public:
  static constexpr int64_t kLongest = 1 << 16;

  // Weights above zero, of any sum. ConfigError for none, for others, and for one below a 65536th of the sum.
  explicit Turns(const std::vector<double>& weights);

  struct Turn {
    size_t source;
    int64_t number;  // of the source's samples in front of it
  };
  Turn at(int64_t sample) const;
  int64_t count(size_t source, int64_t samples) const;  // of a source among the first samples
  int64_t period() const { return static_cast<int64_t>(order_.size()); }

 private:
  struct Place {
    uint32_t source, before;  // of its samples in this period
  };
  std::vector<int64_t> quotas_;  // samples of each source in a period
  std::vector<Place> order_;
};

}  // namespace trireme
