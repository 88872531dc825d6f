// Sums of n elements in double, in an order that depends on n alone: blocks sum parts, then one
// block sums the parts.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace trireme {

constexpr int64_t kMostParts = 1024;
inline int64_t parts_of(int64_t n) { return std::clamp<int64_t>(n / (16 * kThreads), 1, kMostParts); }

// parts[b] = the sum of term(i) over part b of n. A block of kThreads for each part.
template <class Term>
__device__ void sum_part(double* parts, int64_t n, const Term& term) {
  auto& partial = block_shared<double[32]>();
  const int64_t length = (n + gridDim.x - 1) / gridDim.x, begin = min(n, blockIdx.x * length), end = min(n, begin + length);
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += term(i);
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// The sum of the parts, returned on every thread of one block of kThreads.
__device__ inline double sum_of_parts(const double* parts, int64_t count) {
  auto& partial = block_shared<double[32]>();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  return block_sum(sum, partial);
}

inline Grid grid_of_parts(int64_t parts) { return {.blocks = parts, .threads = kThreads, .shared = 32 * sizeof(double)}; }

}  // namespace trireme
