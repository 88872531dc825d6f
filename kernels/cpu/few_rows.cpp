#include "kernels/cpu/few_rows.h"

#include <array>
#include <cstring>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

namespace {

using Halves [[gnu::vector_size(__BIGGEST_ALIGNMENT__ / 2)]] = uint16_t;
using Words [[gnu::vector_size(__BIGGEST_ALIGNMENT__)]] = uint32_t;

// kLanes numbers from anywhere, as f32.
inline Vec widened(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec widened(const Bf16* p) {
  Halves bits;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<Vec>(__builtin_convertvector(bits, Words) << 16);
}

inline float total(Vec v) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

// sums[j][i] = row j of w times row i of x, both of length k.
template <class T, int columns, int rows>
[[gnu::noinline]] void dots(const T* w, const float* x, int64_t k, float (*sums)[kFewRows]) {
  Vec part[columns][rows] = {};
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t at = 0; at < whole; at += kLanes)
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      const Vec weights = widened(w + j * k + at);
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) part[j][i] += weights * widened(x + i * k + at);
    }
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) {
      sums[j][i] = total(part[j][i]);
      for (int64_t at = whole; at < k; ++at) sums[j][i] += to_float(w[j * k + at]) * x[i * k + at];
    }
}

// Rows [begin, end) of w, several at a time: their sums do not wait for each other.
template <class T, class C, int rows>
void multiply_rows(const Matmul& op, const float* x, int64_t begin, int64_t end) {
  constexpr int kAtOnce = rows > 2 ? 2 : 4;
  const int64_t k = op.k(), n = op.n();
  const T* w = op.b.as<T>();
  C* c = op.c.as<C>();
  const float* bias = op.bias ? op.bias.as<float>() : nullptr;
  float sums[kAtOnce][kFewRows];
  for (int64_t column = begin; column < end; column += kAtOnce) {
    const int64_t count = std::min<int64_t>(kAtOnce, end - column);
    if (count == kAtOnce)
      dots<T, kAtOnce, rows>(w + column * k, x, k, sums);
    else
      for (int64_t j = 0; j < count; ++j) dots<T, 1, rows>(w + (column + j) * k, x, k, sums + j);
    for (int64_t j = 0; j < count; ++j)
      for (int64_t i = 0; i < rows; ++i) {
        C& to_add = c[i * n + column + j];
        const float sum = sums[j][i] + (bias != nullptr ? bias[column + j] : 0);
        to_add = to<C>(op.accumulate ? to_float(to_add) + sum : sum);
      }
  }
}

template <class T, class C>
void multiply_all(const Matmul& op, const float* x) {
  constexpr int64_t kWeightRows = 32;
  const std::array multiply{multiply_rows<T, C, 1>, multiply_rows<T, C, 2>, multiply_rows<T, C, 3>, multiply_rows<T, C, 4>};
  const auto some = multiply[static_cast<size_t>(op.m() - 1)];
  const int64_t n = op.n(), blocks = (n + kWeightRows - 1) / kWeightRows;
#pragma omp parallel for schedule(static) if (n * op.k() > 32768)
  for (int64_t i = 0; i < blocks; ++i) some(op, x, i * kWeightRows, std::min(n, (i + 1) * kWeightRows));
}

}  // namespace

bool has_few_rows(const Matmul& op) { return op.m() <= kFewRows && !op.transpose_a && op.transpose_b && !op.of_8_bits(); }

void multiply_few_rows(const Cpu& cpu, const Matmul& op) {
  static_assert(kFewRows == 4);
  with_dtype(op.b.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = op.a.as<T>();
    const float* wide = nullptr;
    if constexpr (kDtype<T> == Dtype::f32) {
      wide = x;
    } else {
      auto* copy = reinterpret_cast<float*>(cpu.workspace->reserve(4 * op.a.size()));
      for (int64_t i = 0; i < op.a.size(); ++i) copy[i] = to_float(x[i]);
      wide = copy;
    }
    with_dtype(op.c.dtype(), [&](auto out) { multiply_all<T, decltype(out)>(op, wide); });
  });
}

}  // namespace trireme
