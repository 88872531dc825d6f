// A matrix product of random numbers, ready to run: to measure how long it takes. Random, since numbers of one value cost a
// processor less power, and so less time, than any that a model has.
#pragma once

#include <vector>

#include "kernels/memory.h"
#include "kernels/ops/matmul.h"

namespace trireme {

// x = normal numbers, by way of some memory of the arena's.
void fill_random(Stream& stream, Arena& arena, const Tensor& x, float stddev, uint64_t key);
constexpr int64_t kRandomBytes = 4 << 16;  // of that memory, at most

class ProductTrial {
 public:
  // With inputs of `dtype`, but for bits8. Takes memory of `device`, which is not frozen and outlives it.
  ProductTrial(Device& device, Dtype dtype, const ProductShape& shape);

  const Matmul& product() const { return product_; }
  // Seconds of one: the best of at least three rounds and `least_seconds`, after one to warm up.
  double seconds(double least_seconds) const;
  // Seconds of one in each of kWindows windows of at least a millisecond, the shortest first; of one that takes half a second, in
  // three.
  static constexpr int kWindows = 6;
  std::vector<double> windows() const;

 private:
  Tensor random(Dtype dtype, std::initializer_list<int64_t> shape);
  Tensor quantized(Dtype dtype, std::initializer_list<int64_t> shape, Tensor& scale);
  double time(int count) const;  // seconds of so many in a row

  Device& device_;
  Arena arena_;
  Matmul product_;
};

}  // namespace trireme
