#include "kernels/ops/adamw.h"

#include <cmath>

#include "kernels/cpu/simd.h"
#include "kernels/ops/fill.h"

namespace trireme {

namespace {

double squares(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

void launch(const Cpu&, const SquaredNorm& op) {
  const float* x = op.x.as<float>();
  const double sum = sum_of_blocks(op.x.size(), [&](int64_t begin, int64_t end) { return squares(x + begin, end - begin); });
  op.total.as<float>()[0] += static_cast<float>(sum);
}

void launch(const Cpu&, const AdamW& op) {
  float* grad = op.grad.as<float>();
  const double squared_norm = op.squared_norm.as<float>()[0];
  if (!std::isfinite(squared_norm)) return launch(Cpu{}, Fill{.x = op.grad});

  const double steps = static_cast<double>(op.step);
  const float rescale = op.clip > 0 ? static_cast<float>(std::min(1.0, op.clip / std::sqrt(squared_norm))) : 1.0f;
  const float mean = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta1), steps)));
  const float spread = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta2), steps)));
  const float beta1 = op.beta1, beta2 = op.beta2, eps = op.eps, lr = op.lr, decay = op.decay;
  float *master = op.master.as<float>(), *m = op.m.as<float>(), *v = op.v.as<float>();
  Bf16* weight = op.weight ? op.weight.as<Bf16>() : nullptr;

  for_blocks(op.master.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = grad[i] * rescale;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      master[i] -= lr * (m[i] * mean / (std::sqrt(v[i] * spread) + eps) + decay * master[i]);
      grad[i] = 0;
    }
    if (weight == nullptr) return;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) weight[i] = to<Bf16>(master[i]);  // this block of master is still in the cache
  });
}

}  // namespace trireme
