// Whether numbers are numbers.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/tensor.h"

namespace trireme {

// The first element of a tensor on Place::cpu that is infinite or no number; -1: there is none, as in integers.
inline int64_t first_not_finite(const Tensor& x) {
  constexpr int64_t kBlock = 1024;
  const auto search = [&]<class Bits>(Bits exponent) -> int64_t {
    const auto* bytes = static_cast<const std::byte*>(x.data());
    Bits block[kBlock];
    for (int64_t begin = 0; begin < x.size(); begin += kBlock) {
      const int64_t n = std::min(kBlock, x.size() - begin);
      std::memcpy(block, bytes + begin * static_cast<int64_t>(sizeof(Bits)), static_cast<size_t>(n) * sizeof(Bits));
      bool any = false;
      for (int64_t i = 0; i < n; ++i) any |= (block[i] & exponent) == exponent;
      if (!any) continue;
      for (int64_t i = 0; i < n; ++i)
        if ((block[i] & exponent) == exponent) return begin + i;
    }
    return -1;
  };
  if (x.dtype() == Dtype::f32) return search(uint32_t{0x7f800000});
  if (x.dtype() == Dtype::bf16) return search(uint16_t{0x7f80});
  return -1;
}

}  // namespace trireme
