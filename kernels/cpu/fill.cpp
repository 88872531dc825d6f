#include "kernels/ops/fill.h"

#include "kernels/cpu/normal.h"
#include "kernels/cpu/simd.h"

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

void launch(const Cpu&, const CastColumns& op) {
  const int64_t n = op.y.cols(), columns = op.x.cols();
  with_dtype(op.y.dtype(), [&](auto to_zero) {
    with_dtype(op.x.dtype(), [&](auto from_zero) {
      using Y = decltype(to_zero);
      using X = decltype(from_zero);
      for_blocks(op.y.dim(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          Y* y = op.y.as<Y>() + row * n;
          const X* x = op.x.as<X>() + row * columns + op.first;
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) y[i] = to<Y>(to_float(x[i]));
        }
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

namespace {

constexpr int64_t kStrip = 256;  // elements that a tree sums at the same time

// sum[i] = the tree's sum of element i of `count` parts, n elements apart, for i < length <=
// kStrip.
template <class From>
void sum_tree(const From* parts, int64_t n, int64_t count, int64_t length, float* sum) {
  if (count == 1) {
    for (int64_t i = 0; i < length; ++i) sum[i] = to_float(parts[i]);
    return;
  }
  const int64_t left = count / 2;
  float right[kStrip];
  sum_tree(parts, n, left, length, sum);
  sum_tree(parts + left * n, n, count - left, length, right);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) sum[i] += right[i];
}

}  // namespace

void launch(const Cpu&, const SumParts& op) {
  const int64_t n = op.y.size(), count = n == 0 ? 0 : op.parts.size() / n;
  with_dtype(op.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* y = op.y.as<T>();
    with_dtype(op.parts.dtype(), [&](auto part) {
      const auto* parts = op.parts.as<decltype(part)>();
      for_blocks(n, kStrip, [&](int64_t begin, int64_t end) {
        float sum[kStrip];
        sum_tree(parts + begin, n, count, end - begin, sum);
        for (int64_t i = begin; i < end; ++i) y[i] = to<T>((op.accumulate ? to_float(y[i]) : 0.0f) + sum[i - begin]);
      });
    });
  });
}

void launch(const Cpu&, const TreeAdd& op) {
  const int64_t stride = op.tree.cols();
  float* tree = op.tree.as<float>() + op.first;
  const float* addend = op.addend.as<float>();
  for_blocks(op.addend.size(), kStrip, [&](int64_t begin, int64_t end) {
    float sum[kStrip];
    std::copy(addend + begin, addend + end, sum);
    int64_t level = 0;
    for (; (op.index >> level & 1) != 0; ++level) {
      const float* row = tree + level * stride + begin;
#pragma omp simd
      for (int64_t i = 0; i < end - begin; ++i) sum[i] = row[i] + sum[i];
    }
    std::copy_n(sum, end - begin, tree + level * stride + begin);
  });
}

void launch(const Cpu&, const TreeTotal& op) {
  const int64_t n = op.tree.cols(), levels = op.tree.dim(0);
  float* sum = op.tree.as<float>();
  for_blocks(n, kBlock, [&](int64_t begin, int64_t end) {
    bool any = (op.count & 1) != 0;
    for (int64_t level = 1; level < levels; ++level) {
      if ((op.count >> level & 1) == 0) continue;
      const float* row = op.tree.as<float>() + level * n;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) sum[i] = any ? row[i] + sum[i] : row[i];
      any = true;
    }
  });
}

void launch(const Cpu&, const SumInto& op) {
  const float* x = op.x.as<float>();
  const double total = sum_of_blocks(op.x.size(), [&](int64_t begin, int64_t end) { return sum(x + begin, end - begin); });
  const float scale = op.scale * (op.factor ? op.factor.as<float>()[0] : 1.0f);
  op.total.as<float>()[0] += static_cast<float>(scale * total);
}

namespace {

constexpr int64_t kRowsAtOnce = 4;

// Adds rows one after the other to the sums of columns [begin, end), and fetches the next rows: the processor foresees no row of
// another page.
template <class T>
void add_rows(const T* rows, int64_t cols, int64_t begin, int64_t end, float* sums) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const auto add = [&](int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t c = first; c < last; ++c) {
      float sum = sums[c];
      for (int64_t n = 0; n < kRowsAtOnce; ++n) sum += to_float(rows[n * cols + c]);
      sums[c] = sum;
    }
  };
  int64_t c = begin;
  for (; c + kLine <= end; c += kLine) {
    for (int64_t n = kRowsAtOnce; n < 2 * kRowsAtOnce; ++n) __builtin_prefetch(rows + n * cols + c);
    add(c, c + kLine);
  }
  add(c, end);
}

}  // namespace

// Each thread walks all rows for its own columns, so a column is summed in the order of n with any
// number of threads.
void launch(const Cpu&, const BiasBackward& op) {
  with_dtype(op.dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* dy = op.dy.as<T>();
    float* dbias = op.dbias.as<float>();
    const int64_t rows = op.dy.rows(), cols = op.dy.cols();
    for_columns(rows, cols, [&](int64_t begin, int64_t end) {
      int64_t n = 0;
      for (; n + kRowsAtOnce <= rows; n += kRowsAtOnce) add_rows(dy + n * cols, cols, begin, end, dbias);
      for (; n < rows; ++n)
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) dbias[c] += to_float(dy[n * cols + c]);
    });
  });
}

void launch(const Cpu&, const FillNormal& op) {
  float* x = op.x.as<float>();
  for_blocks(op.x.size(), kBlock, [&](int64_t begin, int64_t end) {
    uint64_t index[kNormals] = {};
    double normals[kNormals];
    for (int64_t at = begin; at < end; at += kNormals) {
      const int64_t count = std::min(kNormals, end - at);
      for (int64_t i = 0; i < count; ++i) index[i] = static_cast<uint64_t>(op.index(op.first + at + i));
      fast_normals(op.key, index, normals);
      for (int64_t i = 0; i < count; ++i) x[at + i] = static_cast<float>(op.stddev * normals[i]);
    }
  });
}

}  // namespace trireme
