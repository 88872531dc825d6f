// Normal numbers of philox.h, several at a time: a loop that `#pragma omp simd` vectorises has no calls of the C library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace trireme {

// As unit(high << 32 | low), exactly. Processors of before AVX-512 convert no 64-bit integers.
inline double unit_of_words(uint32_t high, uint32_t low) {
  const uint32_t low21 = low >> 11;  // 53 bits are 32 and 21
  const double top =
      static_cast<double>(static_cast<int32_t>(high >> 16)) * 65536 + static_cast<double>(static_cast<int32_t>(high & 0xffff));
  return (top * 0x1p21 + static_cast<double>(static_cast<int32_t>(low21)) + 0.5) * 0x1p-53;
}

// log(x) of a normal x. With x = 2^e m and m between 1/sqrt(2) and sqrt(2), log(m) = 2 artanh((m - 1) / (m + 1)). The relative
// error is at most 4e-16.
inline double log_of_unit(double x) {
  constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  const uint64_t bits = std::bit_cast<uint64_t>(x), shifted = bits - kRootOfHalf + 0x3ff0000000000000;
  const auto e = static_cast<double>(static_cast<int32_t>(shifted >> 52) - 1023);
  const double m = std::bit_cast<double>((shifted & 0x000fffffffffffff) + kRootOfHalf);
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 23;
#pragma GCC unroll 16
  for (int n = 21; n >= 3; n -= 2) p = p * z + 1.0 / n;
  constexpr double kHigh = 0x1.62e42feep-1, kLow = 0x1.a39ef35793c76p-33;  // of log 2: e kHigh is exact
  return e * kHigh + (2 * s + (2 * s * z * p + e * kLow));
}

// cos(2 pi v) of v between 0 and 1: sin(2 pi (1/4 - |w|)) with w = v - round(v), which is exact. The relative error is at most
// 1e-15.
inline double cos_of_turn(double v) {
  const double w = v - (v > 0.5 ? 1.0 : 0.0), x = 2 * 3.14159265358979323846 * (0.25 - std::abs(w)), z = x * x;
  double p = -1.0 / (22 * 23);
#pragma GCC unroll 16
  for (int n = 20; n >= 2; n -= 2) p = (1 + p * z) * (-1.0 / (n * (n + 1)));
  return x + x * z * p;
}

inline constexpr int64_t kNormals = 256;

// y[i] = normal(key, index[i]), but for the last bits of a double. Always so many: a loop's rest could round in another way.
inline void fast_normals(uint64_t key, const uint64_t (&index)[kNormals], double (&y)[kNormals]) {
#pragma omp simd
  for (int64_t i = 0; i < kNormals; ++i) {
    uint32_t a = static_cast<uint32_t>(index[i]), b = static_cast<uint32_t>(index[i] >> 32), c = 0, d = 0;
    philox_rounds(key, a, b, c, d);
    y[i] = std::sqrt(-2 * log_of_unit(unit_of_words(a, b))) * cos_of_turn(unit_of_words(c, d));
  }
}

}  // namespace trireme
