// One launch for a tensor: reads master, m, v and gradient, writes them and the weight; 34 bytes for each element with bf16
// weights.
#include <cmath>

#include "kernels/cuda/sums.cuh"
#include "kernels/ops/adamw.h"

namespace trireme {
namespace {

__global__ void parts_of_squares(double* parts, const float* x, int64_t n) {
  sum_part(parts, n, [&](int64_t i) { return static_cast<double>(x[i]) * x[i]; });
}
__global__ void total_of_squares(float* total, const double* parts, int64_t count) {
  const double sum = sum_of_parts(parts, count);
  if (threadIdx.x == 0) *total += static_cast<float>(sum);
}

struct Factors {
  float lr, beta1, beta2, eps, decay, clip;
  float mean, spread;  // 1 / (1 - beta^t)
};

template <int kN>
__global__ void adamw(Bf16* weight, float* master, float* m, float* v, float* grad, const float* squared_norm, Factors f,
                      int64_t n) {
  const float norm = sqrtf(*squared_norm);
  const bool finite = isfinite(norm);
  const float rescale = f.clip > 0 ? min(1.0f, f.clip / norm) : 1.0f;
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float g[count], mean[count], spread[count], w[count];
    if (finite) {
      load<count>(g, grad + i);
      load<count>(mean, m + i);
      load<count>(spread, v + i);
      load<count>(w, master + i);
      for (int k = 0; k < count; ++k) {
        g[k] *= rescale;
        mean[k] = f.beta1 * mean[k] + (1 - f.beta1) * g[k];
        spread[k] = f.beta2 * spread[k] + (1 - f.beta2) * g[k] * g[k];
        w[k] -= f.lr * (mean[k] * f.mean / (sqrtf(spread[k] * f.spread) + f.eps) + f.decay * w[k]);
      }
      store<count>(m + i, mean);
      store<count>(v + i, spread);
      store<count>(master + i, w);
      if (weight != nullptr) store<count>(weight + i, w);
    }
    for (float& element : g) element = 0;
    store<count>(grad + i, g);
  });
}

}  // namespace

void launch(const Cuda& cuda, const SquaredNorm& op) {
  const int64_t n = op.x.size(), count = parts_of(n);
  auto* parts = static_cast<double*>(scratch(cuda, count * 8));
  start(cuda, grid_of_parts(count), parts_of_squares, parts, op.x.as<float>(), n);
  start(cuda, grid_of_parts(1), total_of_squares, op.total.as<float>(), parts, count);
}

void launch(const Cuda& cuda, const AdamW& op) {
  const auto steps = static_cast<double>(op.step);
  const auto correction = [&](float beta) { return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), steps))); };
  const Factors factors{.lr = op.lr,
                        .beta1 = op.beta1,
                        .beta2 = op.beta2,
                        .eps = op.eps,
                        .decay = op.decay,
                        .clip = op.clip,
                        .mean = correction(op.beta1),
                        .spread = correction(op.beta2)};
  const int64_t n = op.master.size();
  with_packs(in_packs({op.weight, op.master, op.m, op.v, op.grad}), [&](auto pack) {
    start(cuda, grid_for_packs(n, pack), adamw<pack>, op.weight ? op.weight.as<Bf16>() : nullptr, op.master.as<float>(),
          op.m.as<float>(), op.v.as<float>(), op.grad.as<float>(), op.squared_norm.as<float>(), factors, n);
  });
}

}  // namespace trireme
