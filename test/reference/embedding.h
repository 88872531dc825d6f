// Specification of kernels/ops/embedding.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

// [N, C] from a table [V, C].
Doubles embedding(const std::vector<int64_t>& index, const Doubles& table, int64_t cols);
// The gradient of the table, [rows, C].
Doubles embedding_backward(const Doubles& dx, const std::vector<int64_t>& index, int64_t rows, int64_t cols);

}  // namespace trireme::reference
