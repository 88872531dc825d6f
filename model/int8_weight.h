// A product's 8-bit weight, for generation, with the scales of its rows: see kernels/ops/int8_weights.h.
#pragma once

#include "kernels/memory.h"

namespace trireme {

// A weight [rows, cols] i8, after which the arena has room for its scales.
Tensor take_int8(Arena& arena, int64_t rows, int64_t cols);
// The scales [O] f32 of such a weight, which must be a whole one.
Tensor scales_of(const Tensor& w);

}  // namespace trireme
