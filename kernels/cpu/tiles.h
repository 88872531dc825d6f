// Vectors of the target's registers, and transposes in them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/simd.h"

namespace trireme {

using Vec [[gnu::vector_size(kVectorBytes), gnu::may_alias]] = float;  // as wide as the target's registers
inline constexpr int64_t kLanes = sizeof(Vec) / sizeof(float);
inline constexpr int64_t kColumns = 2 * kLanes;

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
// The same at any float.
using LooseVec [[gnu::vector_size(sizeof(Vec)), gnu::may_alias, gnu::aligned(alignof(float))]] = float;
inline Vec load_any(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
inline void store_any(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Swaps the off-diagonal quarters in every block of 2 half x 2 half elements, of which a and b hold
// two rows.
template <int half, int... lane>
inline void swap_quarters(Vec& a, Vec& b, std::integer_sequence<int, lane...>) {
  const Vec first = __builtin_shufflevector(a, b, (lane & half ? static_cast<int>(kLanes) + lane - half : lane)...);
  b = __builtin_shufflevector(a, b, (lane & half ? static_cast<int>(kLanes) + lane : lane + half)...);
  a = first;
}

template <int half>
inline void transpose_block(Vec* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((i & half) == 0) swap_quarters<half>(rows[i], rows[i + half], std::make_integer_sequence<int, kLanes>());
  if constexpr (2 * half < kLanes) transpose_block<2 * half>(rows);
}

// to [n, lines] = the transpose of from [lines, n]; both multiples of kLanes.
template <int64_t lines = kColumns>
inline void transpose(const float* from, float* to, int64_t n) {
  for (int64_t j = 0; j < n; j += kLanes)
    for (int64_t i = 0; i < lines; i += kLanes) {
      Vec rows[kLanes];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) rows[r] = load(from + (i + r) * n + j);
      transpose_block<1>(rows);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) store(to + (j + r) * lines + i, rows[r]);
    }
}

}  // namespace trireme
