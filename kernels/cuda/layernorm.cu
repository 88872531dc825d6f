// Forward reads x (and the residual), writes y (and the sum): 2 or 4 N C elements. Backward reads
// dy, x and dsum, writes dx: 3 or 4. Its blocks walk rows and keep their own
// sums of dgain and dbias.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/ops/layernorm.h"

namespace trireme {
namespace {

template <class S, class T>
struct LayerNormOperands {
  T* y;
  S* sum;
  float *mean, *inv_std;
  const S* x;
  const T* residual;
  const float *gain, *bias;
  int64_t rows, cols;
  float eps;
};

template <class S, class T, int kN, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads, 1) layernorm_forward(LayerNormOperands<S, T> op, int warps) {
  const ThreadRow place = row_place(warps);
  const int64_t at = place.row * op.cols, cols = place.row < op.rows ? op.cols : 0;
  const auto count = static_cast<float>(op.cols);
  float v[kPacks][kN], sum = 0, squares = 0;
  for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
    load<kN>(v[p], op.x + at + c);
    if (op.residual != nullptr) {
      float more[kN];
      load<kN>(more, op.residual + at + c);
      for (int k = 0; k < kN; ++k) v[p][k] = to_float(rounded<S>(v[p][k] + more[k]));
      store<kN>(op.sum + at + c, v[p]);
    }
    for (int k = 0; k < kN; ++k) sum += v[p][k];
  });
  const float mean = row_sum(place, sum) / count;
  for_row<kN, kPacks>(place, cols, [&](int p, int64_t) {
    for (int k = 0; k < kN; ++k) v[p][k] -= mean, squares += v[p][k] * v[p][k];
  });
  const float inverse = 1 / sqrtf(row_sum(place, squares) / count + op.eps);
  if (place.thread == 0 && cols > 0) op.mean[place.row] = mean, op.inv_std[place.row] = inverse;
  for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
    float gain[kN], bias[kN];
    load<kN>(gain, op.gain + c);
    load<kN>(bias, op.bias + c);
    for (int k = 0; k < kN; ++k) v[p][k] = v[p][k] * inverse * gain[k] + bias[k];
    store<kN>(op.y + at + c, v[p]);
  });
}

template <class S, class T>
struct LayerNormGradients {
  S* dx;
  float* parts;  // [2, slots, C]: of dgain, of dbias
  const T* dy;
  const S *x, *dsum;
  const float *gain, *mean, *inv_std;
  int64_t rows, cols;
};

template <class S, class T, int kN, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads, 1) layernorm_backward(LayerNormGradients<S, T> op, int warps) {
  const ThreadRow place = row_place(warps);
  const auto count = static_cast<float>(op.cols);
  float gain[kPacks][kN], dgain[kPacks][kN] = {}, dbias[kPacks][kN] = {};
  for_row<kN, kPacks>(place, op.cols, [&](int p, int64_t c) { load<kN>(gain[p], op.gain + c); });
  for (int64_t first = 0; first < op.rows; first += place.slots) {
    const int64_t row = first + place.slot, at = row * op.cols, cols = row < op.rows ? op.cols : 0;
    const float mean = cols > 0 ? op.mean[row] : 0, inverse = cols > 0 ? op.inv_std[row] : 0;
    float dy[kPacks][kN], x[kPacks][kN], sum = 0, along = 0;
    for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
      load<kN>(dy[p], op.dy + at + c);
      load<kN>(x[p], op.x + at + c);
      for (int k = 0; k < kN; ++k) {
        x[p][k] = (x[p][k] - mean) * inverse;
        dgain[p][k] += dy[p][k] * x[p][k];
        dbias[p][k] += dy[p][k];
        dy[p][k] *= gain[p][k];
        sum += dy[p][k];
        along += dy[p][k] * x[p][k];
      }
    });
    sum = row_sum(place, sum) / count, along = row_sum(place, along) / count;
    for_row<kN, kPacks>(place, cols, [&](int p, int64_t c) {
      float more[kN] = {};
      if (op.dsum != nullptr) load<kN>(more, op.dsum + at + c);
      for (int k = 0; k < kN; ++k) more[k] += inverse * (dy[p][k] - sum - x[p][k] * along);
      store<kN>(op.dx + at + c, more);
    });
  }
  for_row<kN, kPacks>(place, op.cols, [&](int p, int64_t c) {
    store<kN>(op.parts + place.slot * op.cols + c, dgain[p]);
    store<kN>(op.parts + (place.slots + place.slot) * op.cols + c, dbias[p]);
  });
}

// For wider rows, which are read twice; the second time out of the cache, as are the sums of dgain and dbias.
template <class S, class T, int kN>
__global__ void __launch_bounds__(kMostRowThreads, 1) layernorm_backward_wide(LayerNormGradients<S, T> op, int warps) {
  const ThreadRow place = row_place(warps);
  const auto count = static_cast<float>(op.cols);
  float *const gains = op.parts + place.slot * op.cols, *const biases = op.parts + (place.slots + place.slot) * op.cols;
  for_wide_row<kN>(place, op.cols, [&](int64_t c) { store<kN>(gains + c, {}), store<kN>(biases + c, {}); });
  for (int64_t row = place.slot; row < op.rows; row += place.slots) {
    const int64_t at = row * op.cols;
    const float mean = op.mean[row], inverse = op.inv_std[row];
    float sum = 0, along = 0;
    for_wide_row<kN>(place, op.cols, [&](int64_t c) {
      float dy[kN], x[kN], gain[kN], dgain[kN], dbias[kN];
      load<kN>(dy, op.dy + at + c), load<kN>(x, op.x + at + c), load<kN>(gain, op.gain + c);
      load<kN>(dgain, gains + c), load<kN>(dbias, biases + c);
      for (int k = 0; k < kN; ++k) {
        x[k] = (x[k] - mean) * inverse;
        dgain[k] += dy[k] * x[k];
        dbias[k] += dy[k];
        sum += dy[k] * gain[k];
        along += dy[k] * gain[k] * x[k];
      }
      store<kN>(gains + c, dgain), store<kN>(biases + c, dbias);
    });
    sum = row_sum(place, sum) / count, along = row_sum(place, along) / count;
    for_wide_row<kN>(place, op.cols, [&](int64_t c) {
      float dy[kN], x[kN], gain[kN], more[kN] = {};
      load<kN>(dy, op.dy + at + c), load<kN>(x, op.x + at + c), load<kN>(gain, op.gain + c);
      if (op.dsum != nullptr) load<kN>(more, op.dsum + at + c);
      for (int k = 0; k < kN; ++k) more[k] += inverse * (dy[k] * gain[k] - sum - (x[k] - mean) * inverse * along);
      store<kN>(op.dx + at + c, more);
    });
  }
}

template <class S, class T, int kN, int kPacks>
auto layernorm_backward_for() {
  if constexpr (kPacks > 0) return layernorm_backward<S, T, kN, kPacks>;
  if constexpr (kPacks == 0) return layernorm_backward_wide<S, T, kN>;
}

}  // namespace

void launch(const Cuda& cuda, const LayerNormForward& op) {
  if (op.x.size() == 0) return;
  with_stream_dtype(op.x.dtype(), op.y.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    const LayerNormOperands<S, T> f{.y = op.y.as<T>(),
                                    .sum = op.sum ? op.sum.as<S>() : nullptr,
                                    .mean = op.mean.as<float>(),
                                    .inv_std = op.inv_std.as<float>(),
                                    .x = op.x.as<S>(),
                                    .residual = op.residual ? op.residual.as<T>() : nullptr,
                                    .gain = op.gain.as<float>(),
                                    .bias = op.bias.as<float>(),
                                    .rows = op.x.rows(),
                                    .cols = op.x.cols(),
                                    .eps = op.eps};
    with_row_packs(f.cols, in_packs({op.y, op.sum, op.x, op.gain, op.bias, op.residual}), [&](auto pack, auto packs) {
      const RowGrid g = row_grid(f.rows, (f.cols + pack - 1) / pack, packs);
      start(cuda, g.grid, layernorm_forward<S, T, pack, packs>, f, g.warps);
    });
  });
}

void launch(const Cuda& cuda, const LayerNormBackward& op) {
  if (op.x.size() == 0) return;
  with_stream_dtype(op.x.dtype(), op.dy.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    LayerNormGradients<S, T> b{.dx = op.dx.as<S>(),
                               .parts = nullptr,
                               .dy = op.dy.as<T>(),
                               .x = op.x.as<S>(),
                               .dsum = op.dsum ? op.dsum.as<S>() : nullptr,
                               .gain = op.gain.as<float>(),
                               .mean = op.mean.as<float>(),
                               .inv_std = op.inv_std.as<float>(),
                               .rows = op.x.rows(),
                               .cols = op.x.cols()};
    with_walked_row(b.cols, in_packs({op.dx, op.dy, op.x, op.gain, op.dsum}), [&](auto pack, auto packs) {
      const auto kernel = layernorm_backward_for<S, T, pack, packs>();
      const RowGrid g = walking_grid(kernel, b.rows, (b.cols + pack - 1) / pack, std::max<int>(packs, 1));
      b.parts = static_cast<float*>(scratch(cuda, 2 * g.slots * b.cols * 4));
      start(cuda, g.grid, kernel, b, g.warps);
      ColumnSums<float> sums{.to = op.dgain.as<float>(), .from = b.parts, .rows = g.slots, .cols = b.cols, .accumulate = true};
      sum_columns(cuda, sums);
      sums.to = op.dbias.as<float>(), sums.from = b.parts + g.slots * b.cols;
      sum_columns(cuda, sums);
    });
  });
}

}  // namespace trireme
