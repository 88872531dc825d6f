#include "kernels/ops/outer_step.h"

#include "kernels/cpu/simd.h"

namespace trireme {

void launch(const Cpu&, const OuterGradient& op) {
  auto* delta = op.delta.as<float>();
  const float *outer = op.outer.as<float>(), *master = op.master.as<float>();
  for_blocks(op.outer.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) delta[i] = outer[i] - master[i];
  });
}

void launch(const Cpu&, const OuterStep& op) {
  float *outer = op.outer.as<float>(), *u = op.u.as<float>(), *master = op.master.as<float>(), *delta = op.delta.as<float>();
  const float scale = op.scale, lr = op.lr, momentum = op.momentum;
  for_blocks(op.outer.size(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = scale * delta[i], next = momentum * u[i] + g;
      u[i] = next;
      outer[i] -= lr * (g + momentum * next);
      master[i] = outer[i];
      delta[i] = 0;
    }
  });
}

}  // namespace trireme
