#include "kernels/ops/gradient_norm.h"

#include <cstring>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// Sums of four parts: no addition waits for another, and memory is read in four streams.
double squares(const float* x, int64_t n) {
  constexpr int kEach = 8, kSums = 4, kAhead = 256;  // a processor foresees no further than a page, which ends soon
  using Floats [[gnu::vector_size(kEach * sizeof(float))]] = float;
  using Doubles [[gnu::vector_size(kEach * sizeof(double))]] = double;
  Doubles sums[kSums]{};
  const int64_t part = n / kSums / kEach * kEach;
  for (int64_t j = 0; j < part; j += kEach)
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      __builtin_prefetch(x + s * part + j + kAhead);
      Floats some;
      std::memcpy(&some, x + s * part + j, sizeof some);
      const Doubles wide = __builtin_convertvector(some, Doubles);
      sums[s] += wide * wide;
    }
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = 0;
  for (int lane = 0; lane < kEach; ++lane) sum += all[lane];
  for (int64_t i = kSums * part; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

void launch(const Cpu&, const SquaredNorm& op) {
  float* total = op.total.as<float>();
  total[0] = total[1] = 0;
  for (const Tensor& tensor : op.xs) {
    const float* x = tensor.as<float>();
    const double sum = sum_of_blocks(tensor.size(), [&](int64_t begin, int64_t end) { return squares(x + begin, end - begin); });
    total[0] += static_cast<float>(sum);
    total[1] += static_cast<float>(sum * SquaredSum::kScale);
  }
}

void launch(const Cpu&, const SquaredNormTable&) {}

}  // namespace trireme
