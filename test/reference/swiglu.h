// Specification of kernels/ops/swiglu.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

Doubles swiglu(const Doubles& x, int64_t width);                              // [N, F] from [N, 2 F]
Doubles swiglu_backward(const Doubles& dy, const Doubles& x, int64_t width);  // [N, 2 F]

}  // namespace trireme::reference
