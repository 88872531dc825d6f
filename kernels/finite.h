// Detects NaN and infinity in tensors.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/tensor.h"

namespace trireme {

// Index of the first element of a tensor on Place::cpu that is NaN or infinite; -1 if there is
// none, as in integers.
inline int64_t first_not_finite(const Tensor& x) {
  constexpr int64_t kBlock = 1024;
  const auto search = [&]<class Bits>(Bits exponent) -> int64_t {
    const auto* bytes = static_cast<const std::byte*>(x.data());
    const auto exponent_at = [&](int64_t i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
      return static_cast<Bits>(bits & exponent);
    };
    for (int64_t begin = 0; begin < x.size(); begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, x.size());
      Bits largest = 0;
#pragma omp simd reduction(max : largest)
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, exponent_at(i));
      if (largest != exponent) continue;
      for (int64_t i = begin; i < end; ++i)
        if (exponent_at(i) == exponent) return i;
    }
    return -1;
  };
  if (x.dtype() == Dtype::f32) return search(uint32_t{0x7f800000});
  if (x.dtype() == Dtype::bf16) return search(uint16_t{0x7f80});
  return -1;
}

}  // namespace trireme
