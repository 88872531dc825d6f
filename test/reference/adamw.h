// What kernels/ops/adamw.h means, in double.
#pragma once

#include "kernels/ops/adamw.h"
#include "test/reference/compare.h"

namespace trireme::reference {

struct Moments {
  Doubles master, m, v;
};
// One step on the gradient grad; the options are those of the op, its tensors are not looked at.
void adamw(Moments& state, const Doubles& grad, double squared_norm, const AdamW& options);

}  // namespace trireme::reference
