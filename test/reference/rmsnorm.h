// What kernels/ops/rmsnorm.h means, in double. x is what is normalised: the sum where there is a residual.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

struct RmsNorm {
  Doubles y, inv_rms;
};
RmsNorm rmsnorm(const Doubles& x, const Doubles& gain, double eps);

struct RmsNormGradients {
  Doubles dx, dgain;  // dsum not yet added
};
RmsNormGradients rmsnorm_backward(const Doubles& dy, const Doubles& x, const Doubles& gain, double eps);

}  // namespace trireme::reference
