// A warp for each row of a weight. Plain loops: generation runs on CPUs, and these are here so that it could run elsewhere.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/int8_weights.h"

namespace trireme {
namespace {

constexpr int kRowWarps = kThreads / 32;  // rows that a block has at the same time

// Calls body(row); all threads of a warp have the same.
template <class Body>
__device__ void for_weight_rows(int64_t rows, const Body& body) {
  const int64_t stride = int64_t{gridDim.x} * kRowWarps;
  for (int64_t o = int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32; o < rows; o += stride) body(o);
}
Grid grid_for_weight_rows(int64_t rows) {
  return {.blocks = std::min((rows + kRowWarps - 1) / kRowWarps, int64_t{multiprocessors()} * 8), .threads = kThreads};
}

// Reads x twice, writes a byte for each element.
template <class X>
__global__ void __launch_bounds__(kThreads) round_rows(int8_t* y, float* scales, const X* x, int64_t rows, int64_t cols) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for_weight_rows(rows, [&](int64_t o) {
    uint32_t most = 0;
    for (int64_t i = lane; i < cols; i += 32) most = max(most, __float_as_uint(to_float(x[o * cols + i])) & 0x7fffffffu);
    const Int8Scale s = int8_scale(warp_max(most));
    if (lane == 0) scales[o] = s.scale;
    for (int64_t i = lane; i < cols; i += 32)
      y[o * cols + i] = static_cast<int8_t>(s.finite ? static_cast<int>(rintf(to_float(x[o * cols + i]) * s.inverse)) : 0);
  });
}

template <class Y, class X>
struct Int8Problem {
  Y* y;
  const X* x;
  const int8_t* w;
  const float *scales, *bias;
  int64_t n, outputs, inputs;
};

// Reads w n times, from the cache after the first.
template <class Y, class X>
__global__ void __launch_bounds__(kThreads) multiply_by_rows(Int8Problem<Y, X> p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for_weight_rows(p.outputs, [&](int64_t o) {
    for (int64_t n = 0; n < p.n; ++n) {
      float sum = 0;
      for (int64_t i = lane; i < p.inputs; i += 32)
        sum += static_cast<float>(p.w[o * p.inputs + i]) * to_float(p.x[n * p.inputs + i]);
      sum = warp_sum(sum);
      if (lane == 0) p.y[n * p.outputs + o] = rounded<Y>(sum * p.scales[o] + (p.bias == nullptr ? 0.0f : p.bias[o]));
    }
  });
}

}  // namespace

void launch(const Cuda& cuda, const RoundToInt8& op) {
  if (op.scales.size() == 0) return;
  with_dtype(op.x.dtype(), [&](auto zero) {
    using X = decltype(zero);
    start(cuda, grid_for_weight_rows(op.x.rows()), round_rows<X>, op.y.as<int8_t>(), op.scales.as<float>(), op.x.as<X>(),
          op.x.rows(), op.x.cols());
  });
}

void launch(const Cuda& cuda, const Int8Product& op) {
  if (op.y.size() == 0) return;
  with_dtype(op.x.dtype(), [&](auto zero_x) {
    with_dtype(op.y.dtype(), [&](auto zero_y) {
      using X = decltype(zero_x);
      using Y = decltype(zero_y);
      start(cuda, grid_for_weight_rows(op.w.rows()), multiply_by_rows<Y, X>,
            Int8Problem<Y, X>{.y = op.y.as<Y>(),
                              .x = op.x.as<X>(),
                              .w = op.w.as<int8_t>(),
                              .scales = op.scales.as<float>(),
                              .bias = op.bias ? op.bias.as<float>() : nullptr,
                              .n = op.x.rows(),
                              .outputs = op.w.rows(),
                              .inputs = op.x.cols()});
    });
  });
}

}  // namespace trireme
