// Specification of kernels/ops/fill.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

double sum(const Doubles& x);
double squared_norm(const Doubles& x);
Doubles bias_backward(const Doubles& dy, int64_t cols);  // [C] from [N, C]

}  // namespace trireme::reference
