// What the benchmarks share: the table's rows, what this machine can do at best, a batch of random tokens.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "data/loader/loader.h"
#include "kernels/tune/rates.h"
#include "train/config/config.h"

namespace trireme {

double median(std::vector<double> values);

// A line as printf makes it.
template <class... Parts>
std::string row(const char* format, Parts... parts) {
  std::vector<char> line(240);
  std::snprintf(line.data(), line.size(), format, parts...);
  return line.data();
}

// The ceilings, measured now: products of these shapes alone, and a large copy.
struct Ceilings {
  double copy, products;  // GB/s, read and written; GFLOP/s
};
Ceilings measure_ceilings(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes);
// Says what the machine is and does at best.
void introduce(const Device& device, const Ceilings& best, const char* of);

// Of random tokens, one document a sequence.
class RandomBatch {
 public:
  explicit RandomBatch(const RunConfig& config);
  Batch batch;

 private:
  std::vector<int32_t> ids_[4];
};

}  // namespace trireme
