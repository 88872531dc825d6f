// Products of a few rows, as when a text is continued: c = x w^T. They take as long as reading w, each of whose rows is a sum
// along memory, so nothing is packed.
#pragma once

#include "kernels/device.h"
#include "kernels/ops/matmul.h"

namespace trireme {

inline constexpr int64_t kFewRows = 4;  // more rows share what a library packs

bool has_few_rows(const Matmul& op);

// Without the ops that a product can fuse. Each sum is one thread's, so its bits do not depend on their number.
void multiply_few_rows(const Cpu& cpu, const Matmul& op);

}  // namespace trireme
