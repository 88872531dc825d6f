// Specification of kernels/ops/adamw.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

struct Moments {
  Doubles master, m, v;
};
struct AdamWOptions {
  double lr, beta1, beta2, eps, decay, clip;
  int64_t step;
};
// One step on the gradient grad.
void adamw(Moments& state, const Doubles& grad, double squared_norm, const AdamWOptions& options);

}  // namespace trireme::reference
