#include "kernels/ops/adamw.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/stochastic.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/round_weights.h"

namespace trireme {

namespace {

struct Factors {
  float beta1, beta2, eps, lr, mean, spread;
  Gate gate;
  bool stochastic;
};

// A step without an update: only rounds the weights again.
void pass_over(const AdamWPart& part, const Factors& f) {
  if (part.clears) launch(Cpu{}, Fill{.x = part.grad});
  if (!f.stochastic || !part.weight) return;
  const RoundedPart rounded{.weight = part.weight, .master = part.master, .whole = part.whole};
  launch(Cpu{}, RoundWeights{.parts = {&rounded, 1}, .step = f.gate.step});
}

// Floats of a cache line, and of the memory that is fetched before it is needed: a processor foresees no further than a page.
constexpr int64_t kLine = 16, kFloatsAhead = 256;

template <bool clears>
void update(const AdamWPart& part, const Factors& f) {
  const float beta1 = f.beta1, beta2 = f.beta2, eps = f.eps, lr = f.lr, decay = part.decay;
  const float mean = f.mean, spread = f.spread, rescale = f.gate.scale;
  float *master = part.master.as<float>(), *m = part.m.as<float>(), *v = part.v.as<float>(), *grad = part.grad.as<float>();
  Bf16* weight = part.weight ? part.weight.as<Bf16>() : nullptr;
  for_blocks(part.master.size(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; line += kLine) {
      __builtin_prefetch(grad + line + kFloatsAhead, clears);
      for (const float* changed : {m, v, master}) __builtin_prefetch(changed + line + kFloatsAhead, 1);
      const int64_t last = std::min(end, line + kLine);
#pragma omp simd
      for (int64_t i = line; i < last; ++i) {
        const float g = grad[i] * rescale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        master[i] -= lr * (m[i] * mean / (std::sqrt(v[i] * spread) + eps) + decay * master[i]);
        if constexpr (clears) grad[i] = 0;
      }
    }
    if (weight == nullptr) return;  // afterwards the block of master is still in the cache
    if (f.stochastic)
      return round_stochastically(weight + begin, master + begin, end - begin, RandomBits(part.whole, begin, f.gate.step));
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) weight[i] = to<Bf16>(master[i]);
  });
}

}  // namespace

void launch(const Cpu&, const AdamWSchedule& op) { std::ranges::copy(op.values(), op.schedule.as<float>()); }

void launch(const Cpu&, const AdamW& op) {
  const float* schedule = op.schedule.as<float>();
  const Factors factors{.beta1 = op.beta1,
                        .beta2 = op.beta2,
                        .eps = op.eps,
                        .lr = schedule[0],
                        .mean = schedule[1],
                        .spread = schedule[2],
                        .gate = Gate::read(op.gate.as<float>()),
                        .stochastic = op.rounding == Rounding::stochastic};
  for (const AdamWPart& part : op.parts) {
    if (!factors.gate.passes)
      pass_over(part, factors);
    else
      part.clears ? update<true>(part, factors) : update<false>(part, factors);
  }
}

void launch(const Cpu&, const AdamWTable&) {}

}  // namespace trireme
