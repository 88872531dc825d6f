// Sums over rows, column by column, in a fixed order.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace trireme {

constexpr int kColumnWarps = 8;

// to[y, c] = (with `accumulate` +=) the sum over rows [y each, (y + 1) each) of from[., c]. A block
// has 32 columns; a warp takes every 8th row.
template <class T>
__global__ void column_sums(float* to, const T* from, int64_t rows, int64_t cols, int64_t each, bool accumulate) {
  auto& sums = block_shared<float[kColumnWarps][33]>();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t c = int64_t{blockIdx.x} * 32 + lane, begin = blockIdx.y * each, end = min(rows, begin + each);
  float sum = 0;
  if (c < cols)
    for (int64_t n = begin + warp; n < end; n += kColumnWarps) sum += to_float(from[n * cols + c]);
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || c >= cols) return;
  for (int w = 1; w < kColumnWarps; ++w) sum += sums[w][lane];
  float& total = to[blockIdx.y * cols + c];
  total = accumulate ? total + sum : sum;
}

// Arguments of column_sums.
template <class T>
struct ColumnSums {
  float* to;      // [chunks, cols]
  const T* from;  // [rows, cols]
  int64_t rows, cols;
  int64_t each = rows;  // rows of a chunk
  bool accumulate = false;
};

template <class T>
void sum_columns(const Cuda& cuda, const ColumnSums<T>& sums) {
  start(cuda,
        {.blocks = (sums.cols + 31) / 32,
         .threads = 32 * kColumnWarps,
         .shared = sizeof(float[kColumnWarps][33]),
         .blocks_y = (sums.rows + sums.each - 1) / sums.each},
        column_sums<T>, sums.to, sums.from, sums.rows, sums.cols, sums.each, sums.accumulate);
}

}  // namespace trireme
