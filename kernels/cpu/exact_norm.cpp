// The square of an f32 has 48 bits. So it is exact in double, and so is its product with a power of
// two.
#include "kernels/ops/exact_norm.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/simd.h"

namespace trireme {
namespace {

__extension__ using Integer = __int128;

constexpr int kHalf = 40;  // bits of each half of a square's integer

// Exponent n such that |x| 2^-n < 1 for every |x| <= top.
int exponent_above(float top) { return std::ilogb(top) + 1; }

// Sums n <= 2^22 squares as an integer.
Integer squares(const float* x, int64_t n, double scale) {
  constexpr double kUnit = static_cast<double>(int64_t{1} << kHalf);
  int64_t high = 0, low = 0;
#pragma omp simd reduction(+ : high, low)
  for (int64_t i = 0; i < n; ++i) {
    const double q = x[i] * scale, square = q * q * kUnit;
    const auto above = static_cast<int64_t>(square);
    high += above;
    low += static_cast<int64_t>((square - static_cast<double>(above)) * kUnit);
  }
  return (static_cast<Integer>(high) << kHalf) + low;
}

Integer integer_of(const float* limbs) {
  Integer value = 0;
  for (int64_t i = kLimbs; i-- > 0;) value = value * 256 + static_cast<int64_t>(limbs[i]);
  return value;
}

float magnitude(const float* x, int64_t n) {
  float top = 0;
  bool number = true;
  for (int64_t i = 0; i < n; ++i) {
    top = std::max(top, std::abs(x[i]));
    number &= x[i] == x[i];
  }
  return number ? top : std::numeric_limits<float>::infinity();
}

}  // namespace

void launch(const Cpu&, const LargestMagnitude& op) {
  const float* x = op.x.as<float>();
  float* top = op.top.as<float>();
  std::array<float, 1024> parts{};
  const int64_t n = op.x.size(), block = std::max(kBlock, (n + 1023) / 1024);
  for_blocks(n, block,
             [&](int64_t begin, int64_t end) { parts[static_cast<size_t>(begin / block)] = magnitude(x + begin, end - begin); });
  for (const float part : parts) *top = std::max(*top, part);
}

void launch(const Cpu&, const ExactSquares& op) {
  const float top = *op.top.as<float>();
  if (top == 0 || !std::isfinite(top)) return;
  const double scale = std::ldexp(1.0, -exponent_above(top));
  const float* x = op.x.as<float>();
  float* limbs = op.limbs.as<float>();
  Integer value = integer_of(limbs);
  std::array<Integer, 1024> parts{};
  const int64_t n = op.x.size(), block = std::max(kBlock, (n + 1023) / 1024);
  for_blocks(n, block, [&](int64_t begin, int64_t end) {
    Integer sum = 0;
    for (int64_t at = begin; at < end; at += 1 << 20) sum += squares(x + at, std::min<int64_t>(end - at, 1 << 20), scale);
    parts[static_cast<size_t>(begin / block)] = sum;
  });
  for (const Integer part : parts) value += part;
  for (int64_t i = 0; i < kLimbs; ++i, value /= 256) limbs[i] = static_cast<float>(static_cast<int64_t>(value % 256));
}

void launch(const Cpu&, const SumOfSquares& op) {
  const float top = *op.top.as<float>();
  float* total = op.total.as<float>();
  double sum = 0;
  if (!std::isfinite(top))
    sum = std::numeric_limits<double>::quiet_NaN();
  else if (top != 0)
    sum = std::ldexp(static_cast<double>(integer_of(op.limbs.as<float>())), 2 * exponent_above(top) - 2 * kHalf);
  total[0] = static_cast<float>(sum);
  total[1] = static_cast<float>(sum * SquaredSum::kScale);
}

}  // namespace trireme
