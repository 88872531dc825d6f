#include "kernels/ops/gradient_norm.h"

#include <cstring>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// Sums of four parts: no addition waits for another, and memory is read in four streams. Each part has eight sums, in as many
// vectors as that takes: a wider vector than the processor's would be converted one element at a time.
double squares(const float* x, int64_t n) {
  constexpr int kEach = 8, kDoubles = kVectorBytes / sizeof(double), kVectors = kEach / kDoubles, kSums = 4;
  constexpr int64_t kAhead = 256;  // a processor foresees no further than a page, which ends soon
  using Floats [[gnu::vector_size(kDoubles * sizeof(float))]] = float;
  using Doubles [[gnu::vector_size(kDoubles * sizeof(double))]] = double;
  Doubles sums[kSums][kVectors]{};
  const int64_t part = n / kSums / kEach * kEach;
  for (int64_t j = 0; j < part; j += kEach)
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const float* const at = x + s * part + j;
      __builtin_prefetch(at + kAhead);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Floats some;
        std::memcpy(&some, at + v * kDoubles, sizeof some);
        const Doubles wide = __builtin_convertvector(some, Doubles);
        sums[s][v] += wide * wide;
      }
    }
  double sum = 0;
  for (int v = 0; v < kVectors; ++v) {
    const Doubles all = (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]);
    for (int lane = 0; lane < kDoubles; ++lane) sum += all[lane];
  }
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
