// Stochastic rounding of a block of elements.
#pragma once

#include "kernels/rounding.h"

namespace trireme {

// Rounds n weights from their masters; `bits` begin at the first of them.
inline void round_stochastically(Bf16* weight, const float* master, int64_t n, RandomBits bits) {
  for (int64_t i = 0; i < n; ++i) weight[i] = rounded_stochastically(master[i], bits.next());
}

}  // namespace trireme
