// A matrix product of random numbers, ready to be timed. Random, since constant data takes less
// power, and so less time, than that of any model.
#pragma once

#include <vector>

#include "kernels/memory.h"
#include "kernels/ops/matmul.h"

namespace trireme {

// x = normal numbers, computed in some memory of the arena.
void fill_random(Stream& stream, Arena& arena, const Tensor& x, float stddev, uint64_t key);
constexpr int64_t kRandomBytes = 4 << 16;  // most of that memory

// The product without memory, for what depends on shapes and alignment alone: all tensors have one address, aligned as an arena's.
Matmul imagined_product(Dtype dtype, const ProductShape& shape);

class ProductTrial {
 public:
  // Inputs have `dtype`, except for bits8. Takes memory of `device`, which must not be frozen and must
  // outlive it.
  ProductTrial(Device& device, Dtype dtype, const ProductShape& shape);

  const Matmul& product() const { return product_; }
  // Seconds of one product: the best of at least three rounds and `least_seconds`, after a warm-up.
  double seconds(double least_seconds) const;
  // Some of the results of one product of the same numbers: the beginnings and the ends of its outputs.
  std::vector<float> results();
  // Seconds of one product in each of kWindows windows of at least a millisecond, shortest first; in
  // three windows if a product takes half a second.
  static constexpr int kWindows = 6;
  std::vector<double> windows() const;

 private:
  ProductTrial(Device& device, Dtype dtype, const ProductShape& shape, int64_t bytes);
  static int64_t need(Dtype dtype, const ProductShape& shape);  // bytes, by the same code on Place::none
  void fill(const Tensor& x, const Tensor& scale);              // random numbers; with `scale` if they are 8-bit
  double time(int count) const;                                 // seconds of so many in a row

  void restore();  // the numbers that the product writes over
  void append(std::vector<float>& results, const Tensor& from);

  Device& device_;
  Arena arena_;
  Matmul product_;
};

}  // namespace trireme
