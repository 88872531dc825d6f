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

void round_stochastically(const AdamWPart& part, int64_t step, int64_t begin, int64_t end) {
  const float* master = part.master.as<float>();
  Bf16* weight = part.weight.as<Bf16>();
  RandomBits bits(part.whole, begin, step);
  for (int64_t i = begin; i < end; ++i) weight[i] = rounded_stochastically(master[i], bits.next());
}

void round_stochastically(const AdamWPart& part, int64_t step) {
  for_blocks(part.master.size(), kBlock, [&](int64_t begin, int64_t end) { round_stochastically(part, step, begin, end); });
}

struct Factors {
  float beta1, beta2, eps, lr, mean, spread, rescale;
  bool stochastic;
  int64_t step;
};

void update(const AdamWPart& part, const Factors& f) {
  const float beta1 = f.beta1, beta2 = f.beta2, eps = f.eps, lr = f.lr, decay = part.decay;
  const float mean = f.mean, spread = f.spread, rescale = f.rescale;
  float *master = part.master.as<float>(), *m = part.m.as<float>(), *v = part.v.as<float>(), *grad = part.grad.as<float>();
  Bf16* weight = part.weight ? part.weight.as<Bf16>() : nullptr;
  for_blocks(part.master.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = grad[i] * rescale;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      master[i] -= lr * (m[i] * mean / (std::sqrt(v[i] * spread) + eps) + decay * master[i]);
      grad[i] = 0;
    }
    if (weight == nullptr) return;  // else: this block of master is still in the cache
    if (f.stochastic) return round_stochastically(part, f.step, begin, end);
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) weight[i] = to<Bf16>(master[i]);
  });
}

}  // namespace

void launch(const Cpu&, const SquaredNorm& op) {
  float& total = *op.total.as<float>();
  total = 0;
  for (const Tensor& tensor : op.xs) {
    const float* x = tensor.as<float>();
    const double sum = sum_of_blocks(tensor.size(), [&](int64_t begin, int64_t end) { return squares(x + begin, end - begin); });
    total += static_cast<float>(sum);
  }
}

void launch(const Cpu&, const AdamWSchedule& op) { std::ranges::copy(op.values(), op.schedule.as<float>()); }

void launch(const Cpu&, const AdamW& op) {
  const float* schedule = op.schedule.as<float>();
  const float norm2 = op.squared_norm.as<float>()[0], loss = op.loss ? op.loss.as<float>()[0] : 0;
  const bool passes = AdamWSchedule::limits_of(schedule).pass(norm2, loss);
  const double squared_norm = norm2;
  const Factors factors{
      .beta1 = op.beta1,
      .beta2 = op.beta2,
      .eps = op.eps,
      .lr = schedule[0],
      .mean = schedule[1],
      .spread = schedule[2],
      .rescale = op.clip > 0 ? static_cast<float>(std::min(1.0, op.clip / std::sqrt(squared_norm))) : 1.0f,
      .stochastic = op.rounding == Rounding::stochastic,
      .step = AdamWSchedule::step_of(schedule),
  };
  for (const AdamWPart& part : op.parts) {
    if (passes) {
      update(part, factors);
      continue;
    }
    launch(Cpu{}, Fill{.x = part.grad});
    if (factors.stochastic && part.weight) round_stochastically(part, factors.step);
  }
}

void launch(const Cpu&, const RoundWeights& op) {
  for (const AdamWPart& part : op.parts) round_stochastically(part, op.step);
}

void launch(const Cpu&, const SquaredNormTable&) {}
void launch(const Cpu&, const AdamWTable&) {}

}  // namespace trireme
