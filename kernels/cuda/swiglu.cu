// One thread for each pack of y: forward reads 2 and writes 1 element, backward reads 3 and writes
// 2.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/swiglu.h"

namespace trireme {
namespace {

__device__ float sigmoid(float z) { return 1 / (1 + __expf(-z)); }

// Rows have `width` elements, a multiple of kN: packs do not cross rows.
template <class T, int kN>
__global__ void swiglu_forward(T* y, const T* x, int64_t n, int64_t width) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    const T* const gate = x + i + i / width * width;
    float z[count], up[count];
    load<count>(z, gate);
    load<count>(up, gate + width);
    for (int k = 0; k < count; ++k) z[k] *= sigmoid(z[k]) * up[k];
    store<count>(y + i, z);
  });
}

template <class T, int kN>
__global__ void swiglu_backward(T* dx, const T* dy, const T* x, int64_t n, int64_t width) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    const int64_t gate = i + i / width * width;
    float z[count], up[count], g[count];
    load<count>(z, x + gate);
    load<count>(up, x + gate + width);
    load<count>(g, dy + i);
    for (int k = 0; k < count; ++k) {
      const float s = sigmoid(z[k]), of_up = g[k] * z[k] * s;
      z[k] = g[k] * up[k] * s * (1 + z[k] * (1 - s));
      up[k] = of_up;
    }
    store<count>(dx + gate, z);
    store<count>(dx + gate + width, up);
  });
}

bool in_row_packs(int64_t width, std::initializer_list<Tensor> tensors) { return width % kPack == 0 && in_packs(tensors); }

}  // namespace

void launch(const Cuda& cuda, const SwiGluForward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = op.y.size(), width = op.y.cols();
    with_packs(in_row_packs(width, {op.y, op.x}), [&](auto pack) {
      start(cuda, grid_for_packs(n, pack), swiglu_forward<T, pack>, op.y.as<T>(), op.x.as<T>(), n, width);
    });
  });
}

void launch(const Cuda& cuda, const SwiGluBackward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = op.dy.size(), width = op.dy.cols();
    with_packs(in_row_packs(width, {op.dx, op.dy, op.x}), [&](auto pack) {
      start(cuda, grid_for_packs(n, pack), swiglu_backward<T, pack>, op.dx.as<T>(), op.dy.as<T>(), op.x.as<T>(), n, width);
    });
  });
}

}  // namespace trireme
