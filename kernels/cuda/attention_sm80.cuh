// Tiles of bf16 in shared memory for attention, and their products on tensor cores, for Ampere and
// later.
//
// A tile has kRows rows, 64 or 32, of kSize elements in chunks of 8. Chunk c of row r is at place c
// ^ (r % 8), so ldmatrix has no bank conflicts. A warp's products have 16 rows: c[j][e] is column 8
// j + 2 t + e % 2 of row g + e / 2 * 8, with g = lane / 4 and t = lane % 4.
#pragma once

#include "kernels/cuda/attention.cuh"

namespace trireme {

constexpr int kTileRows = 64, kTileWarps = 4, kRowsOfWarp = 16;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <int kSize>
__device__ Bf16* chunk(Bf16* tile, int row, int c) {
  return tile + row * kSize + (c ^ (row % 8)) * 8;
}

// Loads rows [first, first + kRows) of x, `stride` elements apart, by cp.async; zeros from `rows`
// on.
template <int kSize, int kRows = kTileRows>
__device__ void fetch(Bf16* tile, const Bf16* x, int64_t stride, int64_t first, int64_t rows) {
  // A thread has one chunk of every kEach-th row. These are at the same place of a row, since kEach is a
  // multiple of 8, so that both addresses advance by constants.
  constexpr int kChunks = kSize / 8, kEach = 32 * kTileWarps / kChunks;
  static_assert(kEach % 8 == 0 && kRows % kEach == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks, c = static_cast<int>(threadIdx.x) % kChunks;
  const int left = static_cast<int>(min(rows - first, int64_t{kRows})) - row;  // rows of x from this one on
  Bf16* const to = chunk<kSize>(tile, row, c);
  const Bf16* from = x + (first + row) * stride + c * 8;
#pragma unroll
  for (int r = 0; r < kRows; r += kEach) {
    const bool present = r < left;
    copy_async(to + r * kSize, present ? from : x, present);
    from += kEach * stride;
  }
}

// Starts to load the next of two tiles that are walked together, if one begins before `end`, and
// waits for this one. The wait covers this thread's copies only: others need a barrier.
template <int kSize>
__device__ void turn_tiles(Bf16 (&keys)[2][kTileRows * kSize], Bf16 (&values)[2][kTileRows * kSize], int stage, const Bf16* k,
                           const Bf16* v, int64_t stride, int64_t next, int64_t end, int64_t rows) {
  if (next >= end) return wait_for_groups<0>();
  fetch<kSize>(keys[stage ^ 1], k, stride, next, rows);
  fetch<kSize>(values[stage ^ 1], v, stride, next, rows);
  end_group();
  wait_for_groups<1>();
}

// Columns [16 i, 16 i + 16) of 16 rows from `row` on, as the left operand of a product.
template <int kSize>
__device__ void load_left(uint32_t (&to)[4], Bf16* tile, int row, int i) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  load_matrices(to, chunk<kSize>(tile, row + lane % 16, 2 * i + lane / 16));
}

// c += left b^T, where left is columns [16 i, 16 i + 16) of the warp's rows, and b is a tile.
template <int kSize, int kEighths>
__device__ void multiply_transposed(float (&c)[kEighths][4], const uint32_t (&left)[4], Bf16* b, int i) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < kEighths / 2; ++j) {
    uint32_t right[4];
    load_matrices(right, chunk<kSize>(b, 16 * j + lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2));
    multiply_add(c[2 * j], left, right[0], right[1]);
    multiply_add(c[2 * j + 1], left, right[2], right[3]);
  }
}

// c += p b, with p rounded to bf16 and a tile b.
template <int kSize, int kEighths>
__device__ void add_product(float (&c)[kSize / 8][4], const float (&p)[kEighths][4], Bf16* b) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < kEighths / 2; ++i) {
    const float(&low)[4] = p[2 * i];
    const float(&high)[4] = p[2 * i + 1];
    const uint32_t left[4] = {bf16_bits(low[1], low[0]), bf16_bits(low[3], low[2]), bf16_bits(high[1], high[0]),
                              bf16_bits(high[3], high[2])};
#pragma unroll
    for (int j = 0; j < kSize / 16; ++j) {
      uint32_t right[4];
      load_matrices_transposed(right, chunk<kSize>(b, 16 * i + lane % 16, 2 * j + lane / 16));
      multiply_add(c[2 * j], left, right[0], right[1]);
      multiply_add(c[2 * j + 1], left, right[2], right[3]);
    }
  }
}

// Writes row g + 8 r of c, times `factor`, to memory.
template <int kSize>
__device__ void store_row(Bf16* row, const float (&c)[kSize / 8][4], int r, float factor) {
#pragma unroll
  for (int d = 0; d < kSize / 8; ++d)
    *reinterpret_cast<uint32_t*>(row + 2 * (threadIdx.x % 4) + 8 * d) = bf16_bits(c[d][2 * r + 1] * factor, c[d][2 * r] * factor);
}

}  // namespace trireme
