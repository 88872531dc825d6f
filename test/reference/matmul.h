// Specification of kernels/ops/matmul.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

// op(a) op(b) + bias, [m, n]; bias may be empty.
struct Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
};
Doubles matmul(const Product& p, const Doubles& a, const Doubles& b, const Doubles& bias = {});

}  // namespace trireme::reference
