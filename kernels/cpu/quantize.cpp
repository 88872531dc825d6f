#include "kernels/ops/quantize.h"

#include "kernels/cpu/simd.h"

namespace trireme {
namespace {

constexpr int64_t kTile = 64;  // rows and columns transposed at the same time

// The bits of the largest |x|; those of a NaN are larger than any number's.
template <class T>
uint32_t largest_magnitude(const T* x, int64_t n) {
  uint32_t most = 0;
#pragma omp parallel for simd schedule(static) reduction(max : most) if (parallel : n > 32768)
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(to_float(x[i])) & 0x7fffffffu);
  return most;
}

template <class Y, class X>
void quantize(const Quantize& op) {
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  const X* x = op.x.as<X>();
  Y *y = op.y ? op.y.as<Y>() : nullptr, *transposed = op.transposed ? op.transposed.as<Y>() : nullptr;
  const QuantizeScale s = quantize_scale<Y>(largest_magnitude(x, rows * cols));
  *op.scale.as<float>() = s.scale;
  if (cols == 0) return;
  for_blocks(rows * cols, kTile * cols, [&](int64_t first, int64_t last) {
    const int64_t begin = first / cols, end = last / cols;
    for (int64_t left = 0; left < cols; left += kTile) {
      const int64_t right = std::min(cols, left + kTile);
      Y tile[kTile][kTile];
      for (int64_t n = begin; n < end; ++n)
        for (int64_t c = left; c < right; ++c) tile[n - begin][c - left] = Y(to_float(x[n * cols + c]) * s.inverse);
      for (int64_t n = begin; n < end && y != nullptr; ++n) std::copy_n(tile[n - begin], right - left, y + n * cols + left);
      for (int64_t c = left; c < right && transposed != nullptr; ++c)
        for (int64_t n = begin; n < end; ++n) transposed[c * rows + n] = tile[n - begin][c - left];
    }
  });
}

}  // namespace

void launch(const Cpu&, const Quantize& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using X = decltype(zero);
    op.dtype() == Dtype::e4m3 ? quantize<E4m3, X>(op) : quantize<E5m2, X>(op);
  });
}

}  // namespace trireme
