// Products of a few rows, as when a text is continued: c = x w^T. They take as long as reading w, each of whose rows is a sum
// along memory, so nothing is packed.
#pragma once

#include "kernels/device.h"
#include "kernels/ops/matmul.h"

namespace trireme {

bool has_few_rows(const Matmul& op);

// Without the ops that a product can fuse.
void multiply_few_rows(const Cpu& cpu, const Matmul& op);

// c [M, N] = x [M, K] (scales w)^T + bias [+ c]: see Matmul and Int8Product. More rows than a few read w from the cache. Each sum
// is one thread's, so its bits do not depend on their number, nor on M.
struct RowsProduct {
  Tensor c, x;          // f32 or bf16
  Tensor w;             // [N, K] f32, bf16 or i8
  Tensor scales, bias;  // [N] f32, each may be absent
  bool accumulate = false;
};
void multiply_rows(const Cpu& cpu, const RowsProduct& op);

}  // namespace trireme
