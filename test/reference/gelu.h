// Specification of kernels/ops/gelu.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

Doubles gelu(const Doubles& x);
Doubles gelu_backward(const Doubles& dy, const Doubles& x);

}  // namespace trireme::reference
