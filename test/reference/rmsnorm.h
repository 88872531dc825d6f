// Specification of kernels/ops/rmsnorm.h in double precision. x is the normalised input: the sum if
// there is a residual.
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
