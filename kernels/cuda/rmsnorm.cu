// Forward reads x (and the residual), writes y (and the sum): 2 or 4 N C elements. Backward reads
// dy, x and dsum, writes dx: 3 or 4. Its blocks walk rows and keep their own
// sums of dgain.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/ops/rmsnorm.h"

namespace trireme {
namespace {

template <class S, class T>
struct RmsNormOperands {
  T* y;
  S* sum;
  float* inv_rms;
  const S* x;
  const T* residual;
  const float* gain;
  int64_t rows, cols;
  float eps;
};

template <class S, class T, int kN, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads, 1) rmsnorm_forward(RmsNormOperands<S, T> op, int warps) {
  const ThreadRow place = row_place(warps);
  const int64_t at = place.row * op.cols, cols = place.row < op.rows ? op.cols : 0;
  float v[kPacks][kN], squares = 0;
  for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
    load<kN>(v[p], op.x + at + c);
    if (op.residual != nullptr) {
      float more[kN];
      load<kN>(more, op.residual + at + c);
      for (int k = 0; k < kN; ++k) v[p][k] = to_float(rounded<S>(v[p][k] + more[k]));
      store<kN>(op.sum + at + c, v[p]);
    }
    for (int k = 0; k < kN; ++k) squares += v[p][k] * v[p][k];
  });
  const float inverse = 1 / sqrtf(row_sum(place, squares) / static_cast<float>(op.cols) + op.eps);
  if (place.thread == 0 && cols > 0) op.inv_rms[place.row] = inverse;
  for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
    float gain[kN];
    load<kN>(gain, op.gain + c);
    for (int k = 0; k < kN; ++k) v[p][k] *= inverse * gain[k];
    store<kN>(op.y + at + c, v[p]);
  });
}

template <class S, class T>
struct RmsNormGradients {
  S* dx;
  float* parts;  // [slots, C]
  const T* dy;
  const S *x, *dsum;
  const float *gain, *inv_rms;
  int64_t rows, cols;
};

template <class S, class T, int kN, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads, 1) rmsnorm_backward(RmsNormGradients<S, T> op, int warps) {
  const ThreadRow place = row_place(warps);
  float gain[kPacks][kN], dgain[kPacks][kN] = {};
  for_row<kN, kPacks>(place, op.cols, [&](int p, int64_t c) { load<kN>(gain[p], op.gain + c); });
  for (int64_t first = 0; first < op.rows; first += place.slots) {
    const int64_t row = first + place.slot, at = row * op.cols, cols = row < op.rows ? op.cols : 0;
    const float inverse = cols > 0 ? op.inv_rms[row] : 0;
    float dy[kPacks][kN], x[kPacks][kN], along = 0;
    for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
      load<kN>(dy[p], op.dy + at + c);
      load<kN>(x[p], op.x + at + c);
      for (int k = 0; k < kN; ++k) {
        x[p][k] *= inverse;
        dgain[p][k] += dy[p][k] * x[p][k];
        dy[p][k] *= gain[p][k];
        along += dy[p][k] * x[p][k];
      }
    });
    along = row_sum(place, along) / static_cast<float>(op.cols);
    for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
      float more[kN] = {};
      if (op.dsum != nullptr) load<kN>(more, op.dsum + at + c);
      for (int k = 0; k < kN; ++k) more[k] += inverse * (dy[p][k] - x[p][k] * along);
      store<kN>(op.dx + at + c, more);
    });
  }
  for_row<kN, kPacks>(place, op.cols, [&](int p, int64_t c) { store<kN>(op.parts + place.slot * op.cols + c, dgain[p]); });
}

// For wider rows, which are read twice; the second time out of the cache, as are the sums of dgain.
template <class S, class T, int kN>
__global__ void __launch_bounds__(kMostRowThreads, 1) rmsnorm_backward_wide(RmsNormGradients<S, T> op, int warps) {
  const ThreadRow place = row_place(warps);
  float* const parts = op.parts + place.slot * op.cols;
  for_wide_row<kN>(place, op.cols, [&](int64_t c) { store<kN>(parts + c, {}); });
  for (int64_t row = place.slot; row < op.rows; row += place.slots) {
    const int64_t at = row * op.cols;
    const float inverse = op.inv_rms[row];
    float along = 0;
    for_wide_row<kN>(place, op.cols, [&](int64_t c) {
      float dy[kN], x[kN], gain[kN], dgain[kN];
      load<kN>(dy, op.dy + at + c), load<kN>(x, op.x + at + c), load<kN>(gain, op.gain + c), load<kN>(dgain, parts + c);
      for (int k = 0; k < kN; ++k) {
        x[k] *= inverse;
        dgain[k] += dy[k] * x[k];
        along += dy[k] * gain[k] * x[k];
      }
      store<kN>(parts + c, dgain);
    });
    along = row_sum(place, along) / static_cast<float>(op.cols);
    for_wide_row<kN>(place, op.cols, [&](int64_t c) {
      float dy[kN], x[kN], gain[kN], more[kN] = {};
      load<kN>(dy, op.dy + at + c), load<kN>(x, op.x + at + c), load<kN>(gain, op.gain + c);
      if (op.dsum != nullptr) load<kN>(more, op.dsum + at + c);
      for (int k = 0; k < kN; ++k) more[k] += inverse * (dy[k] * gain[k] - x[k] * inverse * along);
      store<kN>(op.dx + at + c, more);
    });
  }
}

template <class S, class T, int kN, int kPacks>
auto rmsnorm_backward_for() {
  if constexpr (kPacks > 0) return rmsnorm_backward<S, T, kN, kPacks>;
  if constexpr (kPacks == 0) return rmsnorm_backward_wide<S, T, kN>;
}

}  // namespace

void launch(const Cuda& cuda, const RmsNormForward& op) {
  if (op.x.size() == 0) return;
  with_stream_dtype(op.x.dtype(), op.y.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    const RmsNormOperands<S, T> f{.y = op.y.as<T>(),
                                  .sum = op.sum ? op.sum.as<S>() : nullptr,
                                  .inv_rms = op.inv_rms.as<float>(),
                                  .x = op.x.as<S>(),
                                  .residual = op.residual ? op.residual.as<T>() : nullptr,
                                  .gain = op.gain.as<float>(),
                                  .rows = op.x.rows(),
                                  .cols = op.x.cols(),
                                  .eps = op.eps};
    with_row_packs(f.cols, in_packs({op.y, op.sum, op.x, op.gain, op.residual}), [&](auto pack, auto packs) {
      const RowGrid g = row_grid(f.rows, (f.cols + pack - 1) / pack, packs);
      start(cuda, g.grid, rmsnorm_forward<S, T, pack, packs>, f, g.warps);
    });
  });
}

void launch(const Cuda& cuda, const RmsNormBackward& op) {
  if (op.x.size() == 0) return;
  with_stream_dtype(op.x.dtype(), op.dy.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    RmsNormGradients<S, T> b{.dx = op.dx.as<S>(),
                             .parts = nullptr,
                             .dy = op.dy.as<T>(),
                             .x = op.x.as<S>(),
                             .dsum = op.dsum ? op.dsum.as<S>() : nullptr,
                             .gain = op.gain.as<float>(),
                             .inv_rms = op.inv_rms.as<float>(),
                             .rows = op.x.rows(),
                             .cols = op.x.cols()};
    with_walked_row(b.cols, in_packs({op.dx, op.dy, op.x, op.gain, op.dsum}), [&](auto pack, auto packs) {
      const auto kernel = rmsnorm_backward_for<S, T, pack, packs>();
      const RowGrid g = walking_grid(kernel, b.rows, (b.cols + pack - 1) / pack, std::max<int>(packs, 1));
      b.parts = static_cast<float*>(scratch(cuda, g.slots * b.cols * 4));
      start(cuda, g.grid, kernel, b, g.warps);
      sum_columns<float>(cuda, {.to = op.dgain.as<float>(), .from = b.parts, .rows = g.slots, .cols = b.cols, .accumulate = true});
    });
  });
}

}  // namespace trireme
