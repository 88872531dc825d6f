// Reads and writes each tensor once: the second pass over a row finds it in L1.
#include "kernels/ops/rmsnorm.h"

#include <cmath>

#include "kernels/cpu/column_sums.h"

namespace trireme {

void launch(const Cpu&, const RmsNormForward& op) {
  with_stream_dtype(op.x.dtype(), op.y.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    const int64_t rows = op.x.rows(), cols = op.x.cols();
    const float* gain = op.gain.as<float>();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const S* x = op.x.as<S>() + n * cols;
      T* y = op.y.as<T>() + n * cols;
      float squares = 0;
      if (op.residual) {
        const T* residual = op.residual.as<T>() + n * cols;
        S* sum = op.sum.as<S>() + n * cols;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) sum[c] = to<S>(to_float(x[c]) + to_float(residual[c]));
        x = sum;
      }
      // In an order that does not depend on the residual: a stream that is read again gives the same bits.
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < cols; ++c) squares += to_float(x[c]) * to_float(x[c]);
      const float inverse = 1 / std::sqrt(squares / static_cast<float>(cols) + op.eps);
      op.inv_rms.as<float>()[n] = inverse;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) y[c] = to<T>(to_float(x[c]) * inverse * gain[c]);
    }
  });
}

void launch(const Cpu& cpu, const RmsNormBackward& op) {
  with_stream_dtype(op.x.dtype(), op.dy.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    add_column_sums(cpu, op.x.rows(), {op.dgain}, [&](int64_t begin, int64_t end, float* dgain) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t cols = op.x.cols();
        const float* gain = op.gain.as<float>();
        const T* dy = op.dy.as<T>() + n * cols;
        const S* x = op.x.as<S>() + n * cols;
        S* dx = op.dx.as<S>() + n * cols;
        const S* dsum = op.dsum ? op.dsum.as<S>() + n * cols : nullptr;
        float along = 0;  // the part of dy * gain along x does not change y
#pragma omp simd reduction(+ : along)
        for (int64_t c = 0; c < cols; ++c) along += to_float(dy[c]) * gain[c] * to_float(x[c]);
        const float inverse = op.inv_rms.as<float>()[n];
        along *= inverse * inverse / static_cast<float>(cols);
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) {
          const float g = to_float(dy[c]), z = to_float(x[c]);
          dgain[c] += g * z * inverse;
          dx[c] = to<S>((g * gain[c] - z * along) * inverse + (dsum != nullptr ? to_float(dsum[c]) : 0.0f));
        }
      }
    });
  });
}

}  // namespace trireme
