// MixtureSchedule: which source of a mixture each sample of a run comes from, and which of the source's own it is. A pure function
// of the sample's number.
//
// Samples come in blocks of a thousand. A source of weight w has the whole samples of 1000 w at the same places of every block,
// spread evenly (Tijdeman, "The chairman assignment problem", 1980). What its share has beyond them it gets as one sample more in
// some of the blocks, chosen by systematic sampling (Madow, 1949) so that over kBlocks blocks its share is exact; it then keeps the
// place that it took for as long as its turn lasts. So EVERY window of a thousand samples, wherever it begins, has each source's
// share rounded down or up; of any other number of samples it has been seen to have its share to within three. Weights are taken to
// the nearest part of kBlocks thousand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme {

class MixtureSchedule {
 public:
  static constexpr int64_t kBlock = 1000, kBlocks = 4096, kPeriod = kBlock * kBlocks;

  // Weights above zero, of any sum. ConfigError for none, for others, and for one below a kPeriod-th of the sum.
  explicit MixtureSchedule(const std::vector<double>& weights);

  struct Turn {
    size_t source;
    int64_t number;  // of the source's samples in front of it
  };
  Turn at(int64_t sample) const;
  int64_t sample_of(const Turn& turn) const;            // at() backwards
  int64_t count(size_t source, int64_t samples) const;  // of a source among the first samples

 private:
  void arrange();  // order_
  void choose();   // extra_, chosen_, moves_
  size_t moved(size_t seat, int64_t periods) const;

  std::vector<int64_t> shares_;  // of each source, samples of a period
  std::vector<uint32_t> order_;  // of a block: a source, or the number of sources and a seat for one that has a sample more
  // Of each block of a period: who sits where, by seat; and of each source how often it has had one before, by block.
  std::vector<std::vector<uint32_t>> seated_, had_;
  std::vector<size_t> moves_;  // a period later who sits in a seat sits in this one
};

}  // namespace trireme
