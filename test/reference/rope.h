// Specification of kernels/ops/rope.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

// The angle of element pair i at position p, Llama 3.1's scaling included where factor > 1.
struct Rope {
  double theta = 10000, factor = 1, low_factor = 1, high_factor = 4, original_context = 8192;
  double frequency(int64_t i, int64_t size) const;
  Doubles table(int64_t positions, int64_t size) const;  // [P, D/2, 2]
};

// x [N, H, D] rotated by its row's position: each pair (i, i + D/2) as a complex number times
// exp(+-i angle).
Doubles rotate(const Doubles& x, int64_t size, const std::vector<int64_t>& positions, const Doubles& table, bool backward = false);

// Columns [begin, end) of x [N, cols].
Doubles columns(const Doubles& x, int64_t cols, int64_t begin, int64_t end);

}  // namespace trireme::reference
