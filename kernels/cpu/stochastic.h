// Stochastic rounding of a block of elements.
#pragma once

#include "kernels/rounding.h"

namespace trireme {

// weight[begin, end) of bf16 from master's of f32, both elements of `whole` from its first on.
inline void round_stochastically(Bf16* weight, const float* master, const WholeTensor& whole, int64_t step, int64_t begin,
                                 int64_t end) {
  RandomBits bits(whole, begin, step);
  for (int64_t i = begin; i < end; ++i) weight[i] = rounded_stochastically(master[i], bits.next());
}

}  // namespace trireme
