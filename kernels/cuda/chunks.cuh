// Kernels over many tensors in one launch: blocks walk chunks of them, which they look up in a
// table of rows. A row has `size`, the elements of its tensor, and `chunk`, the number of its first
// chunk.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/tile.cuh"
#include "kernels/rounding.h"

namespace trireme {

constexpr int64_t kChunk = 4096;
constexpr int kVector = 4;  // elements: 16 bytes of f32

inline int64_t chunks_of(int64_t size) { return (size + kChunk - 1) / kChunk; }

// Copies the table to the GPU; the host waits, since `rows` is temporary.
template <class Row>
void write_table(const Cuda& cuda, const Tensor& table, std::vector<Row>&& rows) {
  int64_t chunk = 0;
  for (Row& row : rows) row.chunk = std::exchange(chunk, chunk + chunks_of(row.size));
  copy_bytes(*cuda.lane, table.data(), rows.data(), table.bytes());
  finish_lane(*cuda.lane);
}

// Calls body(row, begin, end) for the chunks of this block, in order.
template <class Row, class Body>
__device__ void for_chunks(const Row* rows, int64_t count, int64_t chunks, const Body& body) {
  int64_t at = 0;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    while (at + 1 < count && rows[at + 1].chunk <= chunk) ++at;
    const Row row = rows[at];  // a copy, since writes to memory cannot change it
    const int64_t begin = (chunk - row.chunk) * kChunk;
    body(row, begin, min(row.size, begin + kChunk));
  }
}

// Calls body(count, i) for this thread's elements of a chunk: for kN neighbours at a time and, at
// the end, for single ones.
template <int kN, class Body>
__device__ void for_elements(int64_t begin, int64_t end, const Body& body) {
  const int64_t packs = (end - begin) / kN;
  for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) body(std::integral_constant<int, kN>{}, begin + i * kN);
  if constexpr (kN > 1)
    for (int64_t i = begin + packs * kN + threadIdx.x; i < end; i += blockDim.x) body(std::integral_constant<int, 1>{}, i);
}

inline Grid grid_of_chunks(int64_t chunks) {
  return {.blocks = std::min<int64_t>(chunks, int64_t{multiprocessors()} * 8), .threads = kThreads};
}

// weight[i ..] = w, stochastically rounded.
template <int kN>
__device__ void store_stochastically(Bf16* weight, const WholeTensor& whole, int64_t i, const float (&w)[kN], int64_t step) {
  RandomBits bits(whole, i, step);
  Pack<Bf16, kN> pack;
#pragma unroll
  for (int k = 0; k < kN; ++k) pack.at[k] = rounded_stochastically(w[k], bits.next());
  store(weight + i, pack);
}

}  // namespace trireme
