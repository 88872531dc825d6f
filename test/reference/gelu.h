// What kernels/ops/gelu.h means, in double.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

Doubles gelu(const Doubles& x);
Doubles gelu_backward(const Doubles& dy, const Doubles& x);

}  // namespace trireme::reference
