#include "kernels/ops/fill.h"

#include "kernels/cpu/simd.h"
#include "kernels/philox.h"

namespace trireme {

namespace {

double sum(const float* x, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += x[i];
  return total;
}

}  // namespace

void launch(const Cpu&, const Fill& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* x = op.x.as<T>();
    for_blocks(op.x.size(), kBlock, [&](int64_t begin, int64_t end) { std::fill(x + begin, x + end, to<T>(op.value)); });
  });
}

void launch(const Cpu&, const Cast& op) {
  with_dtype(op.y.dtype(), [&](auto to_zero) {
    with_dtype(op.x.dtype(), [&](auto from_zero) {
      using Y = decltype(to_zero);
      using X = decltype(from_zero);
      Y* y = op.y.as<Y>();
      const X* x = op.x.as<X>();
      for_blocks(op.x.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) y[i] = to<Y>(to_float(x[i]));
      });
    });
  });
}

void launch(const Cpu&, const Add& op) {
  with_dtype(op.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* y = op.y.as<T>();
    const T *a = op.a.as<T>(), *b = op.b.as<T>();
    for_blocks(op.y.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = to<T>(to_float(a[i]) + to_float(b[i]));
    });
  });
}

void launch(const Cpu&, const SumInto& op) {
  const float* x = op.x.as<float>();
  const double total = sum_of_blocks(op.x.size(), [&](int64_t begin, int64_t end) { return sum(x + begin, end - begin); });
  op.total.as<float>()[0] += static_cast<float>(op.scale * total);
}

// Every thread walks all rows over columns of its own, so the order of a column's sum is that of n whatever the number of threads.
void launch(const Cpu&, const BiasBackward& op) {
  with_dtype(op.dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* dy = op.dy.as<T>();
    float* dbias = op.dbias.as<float>();
    const int64_t rows = op.dy.rows(), cols = op.dy.cols();
    for_columns(rows, cols, [&](int64_t begin, int64_t end) {
      for (int64_t n = 0; n < rows; ++n) {
        const T* row = dy + n * cols;
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) dbias[c] += to_float(row[c]);
      }
    });
  });
}

void launch(const Cpu&, const FillNormal& op) {
  float* x = op.x.as<float>();
  for_blocks(op.x.size(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      x[i] = static_cast<float>(op.stddev * normal(op.key, static_cast<uint64_t>(op.first + i)));
  });
}

}  // namespace trireme
