// Parts of the benchmarks: rows of a table, statistics, limits of this machine, a batch of random tokens.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/loader/loader.h"
#include "kernels/tune/rates.h"
#include "train/config/config.h"

namespace trireme {

// A mean and its margin: the true one is within it 19 times in 20. Student's interval (Student, "The probable error of a mean",
// 1908) of two values or more.
struct Estimate {
  double mean, margin;
};
Estimate estimate(const std::vector<double>& values);

// Formats a line, as printf does.
template <class... Parts>
std::string row(const char* format, Parts... parts) {
  std::vector<char> line(240);
  std::snprintf(line.data(), line.size(), format, parts...);
  return line.data();
}

// Limits of this machine, measured now: a large copy, products of these shapes alone, and instructions that multiply and add.
struct Ceilings {
  double copy;          // GB/s, read and written
  double products;      // GFLOP/s
  double instructions;  // GFLOP/s; 0: unknown
};
Ceilings measure_ceilings(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, int64_t copied = kCopiedBytes);
// Prints the machine and its limits.
void introduce(const Device& device, const Ceilings& best, const char* of);
// Name of the processor or GPU.
std::string device_name(const Device& device);
Json json_of(const Ceilings& best);

// A batch of random tokens, one document per sequence.
class RandomBatch {
 public:
  explicit RandomBatch(const RunConfig& config);
  Batch batch;

 private:
  std::vector<int32_t> ids_[4];
};

}  // namespace trireme
