// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(u)) / 2 is sigmoid(2 u): one exp, and no
// cancellation when tanh is near -1.
#include "kernels/ops/gelu.h"

#include <cmath>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

constexpr float kTwice = 2 * 0.797884561f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

inline float gelu(float x) { return x * fast_sigmoid(kTwice * (x + kCubic * x * x * x)); }

// s + x s (1 - s) 2 u'. The product s (1 - s) is e / (1 + e)^2 with e = exp(-|2 u|), since 1 - s
// would lose precision for large x.
inline float slope(float x) {
  const float twice = kTwice * (x + kCubic * x * x * x), e = softmax_exp(-std::abs(twice)), r = fast_reciprocal(1 + e);
  return (twice < 0 ? e * r : r) + x * e * r * r * kTwice * (1 + 3 * kCubic * x * x);
}

}  // namespace

void launch(const Cpu&, const GeluForward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* y = op.y.as<T>();
    const T* x = op.x.as<T>();
    for_blocks(op.x.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = to<T>(gelu(to_float(x[i])));
    });
  });
}

void launch(const Cpu&, const GeluBackward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* dx = op.dx.as<T>();
    const T *dy = op.dy.as<T>(), *x = op.x.as<T>();
    for_blocks(op.x.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dx[i] = to<T>(to_float(dy[i]) * slope(to_float(x[i])));
    });
  });
}

}  // namespace trireme
