#include "kernels/cuda/tile.cuh"
#include "kernels/ops/outer_step.h"

namespace trireme {
namespace {

template <int kN>
__global__ void __launch_bounds__(kThreads) outer_gradient(float* delta, const float* outer, const float* master, int64_t n) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float a[count], b[count];
    load<count>(a, outer + i);
    load<count>(b, master + i);
    for (int k = 0; k < count; ++k) a[k] -= b[k];
    store<count>(delta + i, a);
  });
}

struct OuterMemory {
  float *outer, *u, *master, *delta;
  int64_t n;
  float scale, lr, momentum;
};

// Reads 12 n bytes, writes 16 n.
template <int kN>
__global__ void __launch_bounds__(kThreads) outer_step(OuterMemory p) {
  for_packs<kN>(p.n, [&](auto count, int64_t i) {
    float outer[count], u[count], delta[count];
    load<count>(outer, p.outer + i);
    load<count>(u, p.u + i);
    load<count>(delta, p.delta + i);
    for (int k = 0; k < count; ++k) {
      const float g = p.scale * delta[k];
      u[k] = p.momentum * u[k] + g;
      outer[k] -= p.lr * (g + p.momentum * u[k]);
      delta[k] = 0;
    }
    store<count>(p.u + i, u);
    store<count>(p.outer + i, outer);
    store<count>(p.master + i, outer);
    store<count>(p.delta + i, delta);
  });
}

}  // namespace

void launch(const Cuda& cuda, const OuterGradient& op) {
  with_packs(in_packs({op.delta, op.outer, op.master}), [&](auto pack) {
    start(cuda, grid_for_packs(op.outer.size(), pack), outer_gradient<pack>, op.delta.as<float>(), op.outer.as<float>(),
          op.master.as<float>(), op.outer.size());
  });
}

void launch(const Cuda& cuda, const OuterStep& op) {
  const OuterMemory p{.outer = op.outer.as<float>(),
                      .u = op.u.as<float>(),
                      .master = op.master.as<float>(),
                      .delta = op.delta.as<float>(),
                      .n = op.outer.size(),
                      .scale = op.scale,
                      .lr = op.lr,
                      .momentum = op.momentum};
  with_packs(in_packs({op.outer, op.u, op.master, op.delta}),
             [&](auto pack) { start(cuda, grid_for_packs(p.n, pack), outer_step<pack>, p); });
}

}  // namespace trireme
