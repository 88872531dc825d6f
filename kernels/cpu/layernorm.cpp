// Reads and writes each tensor once: later passes over a row find it in L1. The variance is summed
// around the mean, so that a large mean costs no precision.
#include "kernels/ops/layernorm.h"

#include <cmath>

#include "kernels/cpu/column_sums.h"

namespace trireme {

void launch(const Cpu&, const LayerNormForward& op) {
  with_stream_dtype(op.x.dtype(), op.y.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    const int64_t rows = op.x.rows(), cols = op.x.cols();
    const float *gain = op.gain.as<float>(), *bias = op.bias.as<float>();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const S* x = op.x.as<S>() + n * cols;
      T* y = op.y.as<T>() + n * cols;
      float total = 0, squares = 0;
      if (op.residual) {
        const T* residual = op.residual.as<T>() + n * cols;
        S* sum = op.sum.as<S>() + n * cols;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) sum[c] = to<S>(to_float(x[c]) + to_float(residual[c]));
        x = sum;
      }
      // In an order that does not depend on the residual: a stream that is read again gives the same bits.
#pragma omp simd reduction(+ : total)
      for (int64_t c = 0; c < cols; ++c) total += to_float(x[c]);
      const float mean = total / static_cast<float>(cols);
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < cols; ++c) squares += (to_float(x[c]) - mean) * (to_float(x[c]) - mean);
      const float inverse = 1 / std::sqrt(squares / static_cast<float>(cols) + op.eps);
      op.mean.as<float>()[n] = mean;
      op.inv_std.as<float>()[n] = inverse;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) y[c] = to<T>((to_float(x[c]) - mean) * inverse * gain[c] + bias[c]);
    }
  });
}

void launch(const Cpu& cpu, const LayerNormBackward& op) {
  with_stream_dtype(op.x.dtype(), op.dy.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    add_column_sums(cpu, op.x.rows(), {op.dgain, op.dbias}, [&](int64_t begin, int64_t end, float* lines) {
      const int64_t cols = op.x.cols();
      const float* gain = op.gain.as<float>();
      float *dgain = lines, *dbias = lines + cols;
      for (int64_t n = begin; n < end; ++n) {
        const T* dy = op.dy.as<T>() + n * cols;
        const S* x = op.x.as<S>() + n * cols;
        S* dx = op.dx.as<S>() + n * cols;
        const S* dsum = op.dsum ? op.dsum.as<S>() + n * cols : nullptr;
        const float mean = op.mean.as<float>()[n], inverse = op.inv_std.as<float>()[n];
        float along = 0, level = 0;  // y does not change with the length of x - mean, nor with the mean
#pragma omp simd reduction(+ : along, level)
        for (int64_t c = 0; c < cols; ++c) {
          const float g = to_float(dy[c]) * gain[c];
          level += g;
          along += g * (to_float(x[c]) - mean);
        }
        level /= static_cast<float>(cols);
        along *= inverse / static_cast<float>(cols);
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) {
          const float g = to_float(dy[c]), z = (to_float(x[c]) - mean) * inverse;
          dgain[c] += g * z;
          dbias[c] += g;
          dx[c] = to<S>((g * gain[c] - level - z * along) * inverse + (dsum != nullptr ? to_float(dsum[c]) : 0.0f));
        }
      }
    });
  });
}

}  // namespace trireme
