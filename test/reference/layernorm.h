// What kernels/ops/layernorm.h means, in double. x is what is normalised: the sum where there is a residual.
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
