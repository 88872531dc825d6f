// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)): one exp, as a power of two, and no
// cancellation when tanh is near -1.
#include "kernels/ops/gelu.h"

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

constexpr float kTwice = 2 * 0.797884561f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

// e = exp(-2 u) and s = 1 / (1 + e), of which 1 - s = e s has no cancellation.
struct Sigmoid {
  float e, s;

  explicit Sigmoid(float x) {
    constexpr float kLinear = -kTwice * kLog2E, kMost = 115;  // 2^115 has a reciprocal; s is 0 beyond
    const float power = x * (kLinear + kLinear * kCubic * (x * x));
    e = softmax_exp2(power > kMost ? kMost : power);
    const float r = fast_reciprocal(1 + e);
    s = power > kMost ? 0.0f : r;
  }
};

inline float gelu(float x) { return x * Sigmoid(x).s; }

// s + x s (1 - s) 2 u'. The product with e comes first: it is 0 for large x, whose square must stay finite for that.
inline float slope(float x) {
  constexpr float kMost = 1e30f;
  const Sigmoid sigmoid(x);
  const float square = x * x < kMost ? x * x : kMost;
  return sigmoid.s + sigmoid.s * (sigmoid.e * sigmoid.s * x) * (kTwice + 3 * kTwice * kCubic * square);
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
