// Specification of kernels/ops/layernorm.h in double precision. x is the normalised input: the sum
// if there is a residual.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

struct LayerNorm {
  Doubles y, mean, inv_std;
};
LayerNorm layernorm(const Doubles& x, const Doubles& gain, const Doubles& bias, double eps);

struct LayerNormGradients {
  Doubles dx, dgain, dbias;  // dsum not yet added
};
LayerNormGradients layernorm_backward(const Doubles& dy, const Doubles& x, const Doubles& gain, double eps);

}  // namespace trireme::reference
