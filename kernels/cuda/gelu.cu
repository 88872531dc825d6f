// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(u)) / 2 is sigmoid(2 u). One thread for each
// pack; moves 2 or 3 elements for each.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/gelu.h"

namespace trireme {
namespace {

constexpr float kTwice = 2 * 0.797884561f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

// a / b, with an error of two units in the last place if bf16 rounds it anyway. Precise division takes a third of the
// instructions of a bf16 pack, more than its bytes take time.
template <class T>
__device__ float over(float a, float b) {
  if constexpr (sizeof(T) < sizeof(float)) return __fdividef(a, b);
  return a / b;
}

template <class T>
__device__ float gelu(float x) {
  return over<T>(x, 1 + __expf(-kTwice * (x + kCubic * x * x * x)));
}

// s + x s (1 - s) 2 u'. The product s (1 - s) is e / (1 + e)^2 with e = exp(-|2 u|), since 1 - s
// would lose precision for large x. It is 0 for the largest, whose square must stay finite for that.
template <class T>
__device__ float slope(float x) {
  const float twice = kTwice * (x + kCubic * x * x * x), e = __expf(-fabsf(twice)), r = over<T>(1, 1 + e);
  return (twice < 0 ? e * r : r) + x * e * r * r * kTwice * (1 + 3 * kCubic * fminf(x * x, 1e30f));
}

template <class T, int kN>
__global__ void gelu_forward(T* y, const T* x, int64_t n) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count];
    load<count>(v, x + i);
    for (float& element : v) element = gelu<T>(element);
    store<count>(y + i, v);
  });
}

template <class T, int kN>
__global__ void gelu_backward(T* dx, const T* dy, const T* x, int64_t n) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count], g[count];
    load<count>(v, x + i);
    load<count>(g, dy + i);
    for (int k = 0; k < count; ++k) g[k] *= slope<T>(v[k]);
    store<count>(dx + i, g);
  });
}

}  // namespace

void launch(const Cuda& cuda, const GeluForward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = op.x.size();
    with_packs(in_packs({op.y, op.x}),
               [&](auto pack) { start(cuda, grid_for_packs(n, pack), gelu_forward<T, pack>, op.y.as<T>(), op.x.as<T>(), n); });
  });
}

void launch(const Cuda& cuda, const GeluBackward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = op.x.size();
    with_packs(in_packs({op.dx, op.dy, op.x}), [&](auto pack) {
      start(cuda, grid_for_packs(n, pack), gelu_backward<T, pack>, op.dx.as<T>(), op.dy.as<T>(), op.x.as<T>(), n);
    });
  });
}

}  // namespace trireme
