// Small f32 matrix products on packed tiles, for kernels with operands in L1 and L2: attention.
// A block of kRows x kColumns sums stays in registers while the products stream by. One row of b is
// two vector loads; one element of a is a broadcast, so a can be read along rows or columns and is
// never transposed.
#pragma once

#include "kernels/cpu/six_rows.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

inline constexpr int64_t kRows = kLanes == 16 ? 8 : 6;  // 16 of 32 registers, 12 of 16
inline constexpr int64_t kRest = kColumns % kRows;      // of kColumns rows, those of the last block

// Storage of a: [M, K] rows of the product, or its transpose [K, M].
enum class Walk { rows, columns };

struct TileProduct {
  float* c;  // [m, n], ldc elements between rows
  int64_t ldc;
  const float* a;  // [m, k] (Walk::rows) or [k, kColumns] (Walk::columns)
  int64_t lda;
  const float* b;  // [k, n]
  int64_t ldb;
  int64_t m, n, k = 0;  // m a multiple of kRows, or kColumns; n of kLanes; multiply() sets k by the parts of blocks
  const float* scale = nullptr;
};

// Never inlined: among other loops the compiler would spill the sums.
template <Walk walk, Start start, int rows, int vectors>
[[gnu::noinline]] void multiply_block(const TileProduct& p, int64_t i, int64_t j) {
  const float* a = walk == Walk::rows ? p.a + i * p.lda : p.a + i;
  const float* b = p.b + j;
  float* c = p.c + i * p.ldc + j;
  if constexpr (kSixRows && rows >= 4 && vectors == 2) {
    constexpr int kNext = walk == Walk::rows ? 4 : 4 * kColumns;
    return multiply_six_rows<start, StepsOfA{.next = kNext, .eight = 8 * kNext}, false, rows>(
        {.a = a,
         .row_of_a = walk == Walk::rows ? 4 * p.lda : 4,
         .b = b,
         .next_of_b = 4 * p.ldb,
         .k = p.k,
         .sums = c,
         .row_of_sums = 4 * p.ldc,
         .scale = start == Start::scaled ? p.scale + i : nullptr});
  }
  Vec sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if constexpr (start == Start::zero) sum[r][v] = Vec{};
      if constexpr (start == Start::sum) sum[r][v] = load(c + r * p.ldc + v * kLanes);
      if constexpr (start == Start::scaled) sum[r][v] = load(c + r * p.ldc + v * kLanes) * p.scale[i + r];
    }
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

}  // namespace trireme
