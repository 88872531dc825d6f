// Helpers shared by the CPU kernels: dispatch by dtype, blocks for threads, and bf16 <-> f32 and
// exp in forms that `#pragma omp simd` vectorises.
//
//   with_dtype(op.x.dtype(), [&](auto zero) {
//     using T = decltype(zero);
// float or Bf16
//     const T* x = op.x.as<T>();
//     #pragma omp simd
//     for (int64_t i = 0; i < n; ++i) y[i] = to<T>(softmax_exp(to_float(x[i])));
//   });
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>

#include "kernels/tensor.h"
#include "kernels/vector_bytes.h"

namespace trireme {

// Calls f with a float or a Bf16 of value 0. Throws Error for other dtypes.
template <class F>
decltype(auto) with_dtype(Dtype dtype, F&& f) {
  require(dtype == Dtype::f32 || dtype == Dtype::bf16, text("a kernel of ", name_of(dtype), ", expected f32 or bf16"));
  return dtype == Dtype::bf16 ? f(Bf16{}) : f(float{});
}

// Calls f with a value of the dtype of a residual stream, f32 or `dtype`, and one of `dtype`.
template <class F>
void with_stream_dtype(Dtype stream, Dtype dtype, const F& f) {
  with_dtype(dtype, [&](auto zero) { stream == dtype ? f(zero, zero) : f(float{}, zero); });
}

// Calls f(begin, end) for the blocks of size `block` in [0, n), on several threads if there is
// enough work. The blocks depend on n alone, never on the number of threads.
template <class F>
void for_blocks(int64_t n, int64_t block, const F& f) {
  const int64_t blocks = (n + block - 1) / block;
#pragma omp parallel for schedule(static) if (n > 32768)
  for (int64_t i = 0; i < blocks; ++i) f(i * block, std::min(n, (i + 1) * block));
}
inline constexpr int64_t kBlock = 8192;  // elements: a few of these arrays stay in L1 or L2

// Elements of each block of a sum over n elements, in at most kSumBlocks blocks.
inline constexpr int64_t kSumBlocks = 1024;
inline int64_t block_of_sum(int64_t n) { return std::max(kBlock, (n + kSumBlocks - 1) / kSumBlocks); }

// Sum of f(begin, end) over [0, n) in double, in the same order for any number of threads. A
// reduction belongs in a function that takes pointers: inside a lambda g++ 12 gathers the captured
// pointer for each lane, ten times slower.
template <class F>
double sum_of_blocks(int64_t n, const F& f) {
  const int64_t block = block_of_sum(n);
  std::array<double, kSumBlocks> parts{};
  for_blocks(n, block, [&](int64_t begin, int64_t end) { parts[static_cast<size_t>(begin / block)] = f(begin, end); });
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

// Calls f(begin, end) for ranges of columns, about one per thread. Each range walks all rows in
// order, so sums over rows do not depend on the number of threads. Ranges are multiples of 64
// columns, which limits false sharing.
template <class F>
void for_columns(int64_t rows, int64_t cols, const F& f) {
  constexpr int64_t kWidth = 64;
  const int64_t blocks = (cols + kWidth - 1) / kWidth, ranges = std::min<int64_t>(blocks, omp_get_max_threads());
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (int64_t i = 0; i < ranges; ++i) f(blocks * i / ranges * kWidth, std::min(cols, blocks * (i + 1) / ranges * kWidth));
}

// Fetches memory that is written next: it may be far, or in another core's cache.
inline void fetch_to_write(const void* to, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(to) + at, 1);
}

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// Rounds to nearest even; NaN stays NaN. Bf16's own constructor does the same, but its branch does
// not vectorise.
template <class T>
T to(float value) {
  if constexpr (kDtype<T> == Dtype::f32) {
    return value;
  } else {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    const uint32_t quiet = u | 0x400000u;
    T result;
    result.bits = static_cast<uint16_t>((value == value ? rounded : quiet) >> 16);
    return result;
  }
}

// exp(x) for x up to 88, with a relative error of at most 1e-7; 0 instead of subnormal results. NaN stays NaN. Cody and Waite's
// reduction x = n ln 2 + r, |r| <= ln 2 / 2, then Cephes' polynomial for (exp(r) - 1 - r) / r^2.
inline float softmax_exp(float x) {
  constexpr float kShift = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);  // n is in the low bits
  return x < -87.3365f ? 0.0f : p * power;
}

// 2^x for x up to 127, with a relative error of at most 2e-7; 0 instead of subnormal results. NaN stays NaN. Takes two thirds of
// the instructions of softmax_exp, where a factor log2(e) costs nothing. The polynomial is the best of its degree on [-1/2, 1/2]
// that is 1 at 0.
inline float softmax_exp2(float x) {
  constexpr float kShift = 0x1.8p23f;
  const float shifted = x + kShift;
  const float r = x - (shifted - kShift);
  float p = 1.32647273e-3f;
  p = p * r + 9.67151299e-3f;
  p = p * r + 5.55073359e-2f;
  p = p * r + 2.40222424e-1f;
  p = p * r + 6.93147004e-1f;
  p = p * r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
  return x < -126.0f ? 0.0f : p * power;
}
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// 1 / x for x in [2^-125, 2^125], with a relative error of at most 2e-7. Vectors of 512 bits take a quarter of a division's time:
// the bits of x give 1 / x to 12 %, and each of three steps of Newton's method squares the error. Shorter ones divide in less time.
inline float fast_reciprocal(float x) {
  if constexpr (kVectorBytes < 64) return 1 / x;
  float r = std::bit_cast<float>(0x7ef311c7u - std::bit_cast<uint32_t>(x));
  for (int i = 0; i < 3; ++i) r += r * (1 - x * r);
  return r;
}

// 1 / (1 + exp(-x)), 0 below x = -80.
inline float fast_sigmoid(float x) {
  const float r = fast_reciprocal(1.0f + softmax_exp(x < -80.0f ? 80.0f : -x));
  return x < -80.0f ? 0.0f : r;
}

}  // namespace trireme
