// Specification of kernels/ops/cross_entropy.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

struct CrossEntropy {
  Doubles loss, lse;
};
CrossEntropy cross_entropy(const Doubles& logits, const std::vector<int64_t>& targets, double z_loss);
Doubles cross_entropy_backward(const Doubles& logits, const std::vector<int64_t>& targets, double z_loss, double scale);

}  // namespace trireme::reference
