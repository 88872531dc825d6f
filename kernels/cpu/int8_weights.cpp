#include "kernels/ops/int8_weights.h"

#include <cmath>

#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/simd.h"

namespace trireme {
namespace {

template <class X>
void round_row(int8_t* y, float& scale, const X* x, int64_t n) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(to_float(x[i])) & 0x7fffffffu);
  const Int8Scale s = int8_scale(most);
  scale = s.scale;
  if (!s.finite) {
    std::fill_n(y, n, int8_t{0});
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<int8_t>(static_cast<int32_t>(std::nearbyint(to_float(x[i]) * s.inverse)));
}

}  // namespace

void launch(const Cpu&, const RoundToInt8& op) {
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  if (cols == 0) return;
  with_dtype(op.x.dtype(), [&](auto zero) {
    using X = decltype(zero);
    for_blocks(rows * cols, cols, [&](int64_t begin, int64_t) {
      round_row(op.y.as<int8_t>() + begin, op.scales.as<float>()[begin / cols], op.x.as<X>() + begin, cols);
    });
  });
}

void launch(const Cpu& cpu, const Int8Product& op) {
  if (op.y.size() == 0) return;
  multiply_rows(cpu, {.c = op.y, .x = op.x, .w = op.w, .scales = op.scales, .bias = op.bias});
}

}  // namespace trireme
