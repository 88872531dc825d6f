// Elementwise kernels read and write each element once; sums over columns walk the rows of a strip of columns in order.
#include "base/philox.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/ops/fill.h"

namespace trireme {
namespace {

// x[i] = value. Moves n elements.
template <class T, int kN>
__global__ void fill(T* x, float value, int64_t n) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count];
    for (float& element : v) element = value;
    store<count>(x + i, v);
  });
}

// y[i] = x[i], rounded. Moves 2 n elements.
template <class Y, class X, int kN>
__global__ void cast(Y* y, const X* x, int64_t n) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count];
    load<count>(v, x + i);
    store<count>(y + i, v);
  });
}

// The same for n columns from `first` of rows of x: block row b takes row b. Moves 2 n elements a row.
template <class Y, class X, int kN>
__global__ void cast_columns(Y* y, const X* x, int64_t n, int64_t columns, int64_t first) {
  y += blockIdx.y * n, x += blockIdx.y * columns + first;
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count];
    load<count>(v, x + i);
    store<count>(y + i, v);
  });
}

// y[i] = a[i] + b[i]. Moves 3 n elements.
template <class T, int kN>
__global__ void add(T* y, const T* a, const T* b, int64_t n) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float left[count], right[count];
    load<count>(left, a + i);
    load<count>(right, b + i);
    for (int k = 0; k < count; ++k) left[k] += right[k];
    store<count>(y + i, left);
  });
}

// The tree's sum of element i of `count` parts, n elements apart: halves of a range are summed,
// then added. Sums that wait for their right neighbour are kept with the length of their range.
template <class From>
__device__ float sum_tree(const From* parts, int64_t n, int64_t count, int64_t i) {
  if (count == 1) return to_float(parts[i]);
  if (count == 2) return to_float(parts[i]) + to_float(parts[n + i]);
  constexpr int kDepth = 32;
  struct Range {
    int64_t begin, count;
    float left;
    bool second;
  } open[kDepth];
  int depth = 0;
  open[0] = {0, count, 0, false};
  for (;;) {
    const Range range = open[depth];
    if (range.count > 1) {
      open[++depth] = {range.begin, range.count / 2, 0, false};
      continue;
    }
    float sum = to_float(parts[range.begin * n + i]);
    while (depth > 0 && open[depth - 1].second) sum = open[--depth].left + sum;
    if (depth == 0) return sum;
    Range& above = open[depth - 1];
    above.left = sum, above.second = true;
    open[depth] = {above.begin + above.count / 2, above.count - above.count / 2, 0, false};
  }
}

// Reads count n elements, writes n.
template <class T, class From>
__global__ void sum_parts(T* y, const From* parts, int64_t n, int64_t count, bool accumulate) {
  for_packs<1>(n, [&](auto, int64_t i) { y[i] = rounded<T>((accumulate ? to_float(y[i]) : 0.0f) + sum_tree(parts, n, count, i)); });
}

// The sum that the addend carries into the first unused row.
__global__ void add_to_tree(float* tree, int64_t stride, const float* addend, int64_t n, int64_t index) {
  for_packs<1>(n, [&](auto, int64_t i) {
    float sum = addend[i];
    int64_t level = 0;
    for (; (index >> level & 1) != 0; ++level) sum = tree[level * stride + i] + sum;
    tree[level * stride + i] = sum;
  });
}

// tree[0] = the sum of the rows in use, starting with the lowest.
__global__ void close_tree(float* tree, int64_t n, int64_t levels, int64_t count) {
  for_packs<1>(n, [&](auto, int64_t i) {
    bool any = (count & 1) != 0;
    float sum = tree[i];
    for (int64_t level = 1; level < levels; ++level) {
      if ((count >> level & 1) == 0) continue;
      const float row = tree[level * n + i];
      sum = any ? row + sum : row;
      any = true;
    }
    tree[i] = sum;
  });
}

__global__ void parts_of_sum(double* parts, const float* x, int64_t n) {
  sum_part(parts, n, [&](int64_t i) { return static_cast<double>(x[i]); });
}
__global__ void total_of_sum(float* total, const double* parts, int64_t count, float scale, const float* factor) {
  const double sum = sum_of_parts(parts, count);
  if (threadIdx.x == 0) *total += static_cast<float>((factor == nullptr ? scale : scale * *factor) * sum);
}

// normal() of philox.h with the device's own functions: equal except for the last bit of a double.
__device__ double normal_on_device(uint64_t key, uint64_t index) {
  const auto c = philox(key, index);
  const double u = unit((uint64_t{c[0]} << 32) | c[1]), v = unit((uint64_t{c[2]} << 32) | c[3]);
  return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}
__global__ void fill_normal(float* x, FillNormal op, int64_t n) {
  for_packs<1>(n, [&](auto, int64_t i) {
    const int64_t at = op.first + i, index = op.origin + at / op.cols * op.stride + at % op.cols;
    x[i] = static_cast<float>(op.stddev * normal_on_device(op.key, static_cast<uint64_t>(index)));
  });
}

}  // namespace

void launch(const Cuda& cuda, const Fill& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = op.x.size();
    with_packs(in_packs({op.x}),
               [&](auto pack) { start(cuda, grid_for_packs(n, pack), fill<T, pack>, op.x.as<T>(), op.value, n); });
  });
}

void launch(const Cuda& cuda, const Cast& op) {
  with_dtype(op.y.dtype(), [&](auto to) {
    with_dtype(op.x.dtype(), [&](auto from) {
      using Y = decltype(to);
      using X = decltype(from);
      const int64_t n = op.x.size();
      with_packs(in_packs({op.y, op.x}),
                 [&](auto pack) { start(cuda, grid_for_packs(n, pack), cast<Y, X, pack>, op.y.as<Y>(), op.x.as<X>(), n); });
    });
  });
}

void launch(const Cuda& cuda, const CastColumns& op) {
  const int64_t rows = op.y.dim(0), n = op.y.cols(), columns = op.x.cols();
  const bool packs = in_packs({op.y, op.x}) && (n | columns | op.first) % kPack == 0;
  with_dtype(op.y.dtype(), [&](auto to) {
    with_dtype(op.x.dtype(), [&](auto from) {
      using Y = decltype(to);
      using X = decltype(from);
      with_packs(packs, [&](auto pack) {
        Grid grid = grid_for_packs(n, pack);
        grid.blocks_y = rows;
        start(cuda, grid, cast_columns<Y, X, pack>, op.y.as<Y>(), op.x.as<X>(), n, columns, op.first);
      });
    });
  });
}

void launch(const Cuda& cuda, const Add& op) {
  with_dtype(op.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = op.y.size();
    with_packs(in_packs({op.y, op.a, op.b}),
               [&](auto pack) { start(cuda, grid_for_packs(n, pack), add<T, pack>, op.y.as<T>(), op.a.as<T>(), op.b.as<T>(), n); });
  });
}

void launch(const Cuda& cuda, const SumParts& op) {
  const int64_t n = op.y.size();
  if (n == 0) return;
  with_dtype(op.y.dtype(), [&](auto zero) {
    with_dtype(op.parts.dtype(), [&](auto part) {
      using T = decltype(zero);
      using From = decltype(part);
      start(cuda, grid_for_packs(n, 1), sum_parts<T, From>, op.y.as<T>(), op.parts.as<From>(), n, op.parts.size() / n,
            op.accumulate);
    });
  });
}

void launch(const Cuda& cuda, const TreeAdd& op) {
  const int64_t n = op.addend.size();
  start(cuda, grid_for_packs(n, 1), add_to_tree, op.tree.as<float>() + op.first, op.tree.cols(), op.addend.as<float>(), n,
        op.index);
}

void launch(const Cuda& cuda, const TreeTotal& op) {
  const int64_t n = op.tree.cols();
  start(cuda, grid_for_packs(n, 1), close_tree, op.tree.as<float>(), n, op.tree.dim(0), op.count);
}

void launch(const Cuda& cuda, const SumInto& op) {
  const int64_t n = op.x.size(), count = parts_of(n);
  auto* parts = static_cast<double*>(scratch(cuda, count * 8));
  start(cuda, grid_of_parts(count), parts_of_sum, parts, op.x.as<float>(), n);
  start(cuda, grid_of_parts(1), total_of_sum, op.total.as<float>(), parts, count, op.scale,
        op.factor ? op.factor.as<float>() : nullptr);
}

void launch(const Cuda& cuda, const BiasBackward& op) {
  const int64_t rows = op.dy.rows(), cols = op.dy.cols(), each = std::max<int64_t>(256, (rows + 63) / 64);
  const int64_t count = (rows + each - 1) / each;
  auto* parts = static_cast<float*>(scratch(cuda, count * cols * 4));
  with_dtype(op.dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    sum_columns<T>(cuda, {.to = parts, .from = op.dy.as<T>(), .rows = rows, .cols = cols, .each = each});
  });
  sum_columns<float>(cuda, {.to = op.dbias.as<float>(), .from = parts, .rows = count, .cols = cols, .accumulate = true});
}

void launch(const Cuda& cuda, const FillNormal& op) {
  start(cuda, grid_for_packs(op.x.size(), 1), fill_normal, op.x.as<float>(), op, op.x.size());
}

}  // namespace trireme
