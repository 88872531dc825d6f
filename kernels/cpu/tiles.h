// Small f32 matrix products on packed tiles, for kernels with operands in L1 and L2: attention.
// A block of kRows x kColumns sums stays in registers while the products stream by. One row of b is
// two vector loads; one element of a is a broadcast, so a can be read along rows or columns and is
// never transposed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/simd.h"

namespace trireme {

using Vec [[gnu::vector_size(__BIGGEST_ALIGNMENT__), gnu::may_alias]] = float;  // as wide as the target's registers
inline constexpr int64_t kLanes = sizeof(Vec) / sizeof(float);
inline constexpr int64_t kColumns = 2 * kLanes;
inline constexpr int64_t kRows = kLanes == 16 ? 8 : 6;  // 16 of 32 registers, 12 of 16
inline constexpr int64_t kRest = kColumns % kRows;      // of kColumns rows, those of the last block

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
// The same at any float.
using LooseVec [[gnu::vector_size(sizeof(Vec)), gnu::may_alias, gnu::aligned(alignof(float))]] = float;
inline Vec load_any(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
inline void store_any(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Storage of a: [M, K] rows of the product, or its transpose [K, M].
enum class Walk { rows, columns };
// Initial value of c: zero, itself, or itself with row i multiplied by scale[i].
enum class Start { zero, sum, scaled };

struct TileProduct {
  float* c;  // [m, n], ldc elements between rows
  int64_t ldc;
  const float* a;  // [m, k] (Walk::rows) or [k, m] (Walk::columns)
  int64_t lda;
  const float* b;  // [k, n]
  int64_t ldb;
  int64_t m, n, k = 0;  // m a multiple of kRows, or kColumns; n of kLanes; multiply() sets k by the parts of blocks
  const float* scale = nullptr;
};

// Never inlined: among other loops the compiler would spill the sums.
template <Walk walk, Start start, int rows, int vectors>
[[gnu::noinline]] void multiply_block(const TileProduct& p, int64_t i, int64_t j) {
  Vec sum[rows][vectors];
  float* c = p.c + i * p.ldc + j;
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if constexpr (start == Start::zero) sum[r][v] = Vec{};
      if constexpr (start == Start::sum) sum[r][v] = load(c + r * p.ldc + v * kLanes);
      if constexpr (start == Start::scaled) sum[r][v] = load(c + r * p.ldc + v * kLanes) * p.scale[i + r];
    }
  const float* a = walk == Walk::rows ? p.a + i * p.lda : p.a + i;
  const float* b = p.b + j;
  for (int64_t k = 0; k < p.k; ++k, b += p.ldb, a += walk == Walk::rows ? 1 : p.lda) {
    Vec row[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) row[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const float factor = walk == Walk::rows ? a[r * p.lda] : a[r];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store(c + r * p.ldc + v * kLanes, sum[r][v]);
}

// Part of a row of blocks: columns from `column` on, a multiple of kLanes, and elements [begin, end) of their sums.
struct BlockPart {
  int64_t column, begin, end;
};

// A row of blocks of so many rows, from row i and column j on.
template <Walk walk, Start start, int rows>
inline void multiply_row(const TileProduct& p, int64_t i, int64_t j) {
  for (; p.n - j >= kColumns; j += kColumns) multiply_block<walk, start, rows, 2>(p, i, j);
  if (j < p.n) multiply_block<walk, start, rows, 1>(p, i, j);
}

// c = start + a b. part_of(i) is what is needed of rows i to i + kRows.
template <Walk walk, Start start>
inline void multiply(const TileProduct& p, const auto& part_of) {
  for (int64_t i = 0; i < p.m; i += kRows) {
    const BlockPart part = part_of(i);
    TileProduct some = p;
    some.a += walk == Walk::rows ? part.begin : part.begin * p.lda;
    some.b += part.begin * p.ldb;
    some.k = part.end - part.begin;
    if (p.m - i >= kRows)
      multiply_row<walk, start, kRows>(some, i, part.column);
    else if constexpr (kRest > 0)
      multiply_row<walk, start, kRest>(some, i, part.column);
  }
}

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
