#include "kernels/ops/swiglu.h"

#include "kernels/cpu/simd.h"

namespace trireme {

void launch(const Cpu&, const SwiGluForward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.y.rows(), width = op.y.cols();
#pragma omp parallel for schedule(static) if (rows * width > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      T* y = op.y.as<T>() + n * width;
      const T *gate = op.x.as<T>() + 2 * n * width, *up = gate + width;
#pragma omp simd
      for (int64_t f = 0; f < width; ++f) {
        const float z = to_float(gate[f]);
        y[f] = to<T>(z * fast_sigmoid(z) * to_float(up[f]));
      }
    }
  });
}

void launch(const Cpu&, const SwiGluBackward& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.dy.rows(), width = op.dy.cols();
#pragma omp parallel for schedule(static) if (rows * width > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const T* dy = op.dy.as<T>() + n * width;
      const T *gate = op.x.as<T>() + 2 * n * width, *up = gate + width;
      T *dgate = op.dx.as<T>() + 2 * n * width, *dup = dgate + width;
#pragma omp simd
      for (int64_t f = 0; f < width; ++f) {
        const float z = to_float(gate[f]), s = fast_sigmoid(z), g = to_float(dy[f]), u = to_float(up[f]);
        dgate[f] = to<T>(g * u * s * (1 + z * (1 - s)));
        dup[f] = to<T>(g * z * s);
      }
    }
  });
}

}  // namespace trireme
