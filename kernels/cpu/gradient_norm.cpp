#include "kernels/ops/gradient_norm.h"

#include <cstring>
#include <utility>

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

double squares(const Tensor& tensor) {
  const float* x = tensor.as<float>();
  return sum_of_blocks(tensor.size(), [&](int64_t begin, int64_t end) { return squares(x + begin, end - begin); });
}

}  // namespace

BlockSquares::BlockSquares(const Tensor& x)
    : x_(x.as<float>()), n_(x.size()), block_(block_of_sum(n_)), sums_(static_cast<size_t>((n_ + block_ - 1) / block_)) {}

void BlockSquares::add(int64_t first) {
  sums_[static_cast<size_t>(first / block_)] = squares(x_ + first, std::min(block_, n_ - first));
}

std::optional<double> BlockSquares::take() {
  if (!std::exchange(complete_, false)) return std::nullopt;
  return std::accumulate(sums_.begin(), sums_.end(), 0.0);
}

void launch(const Cpu&, const SquaredNorm& op) {
  float* total = op.total.as<float>();
  total[0] = total[1] = 0;
  for (size_t i = 0; i < op.xs.size(); ++i) {
    const std::optional<double> known = op.known.empty() ? std::nullopt : op.known[i].take();
    const double sum = known ? *known : squares(op.xs[i]);
    total[0] += static_cast<float>(sum);
    total[1] += static_cast<float>(sum * SquaredSum::kScale);
  }
}

void launch(const Cpu&, const SquaredNormTable&) {}

}  // namespace trireme
