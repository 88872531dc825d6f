// Kernels that work row by row and keep a row in registers: each thread has kPacks packs of kN
// elements. A row that fits has its own warp, else its own block.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace trireme {

struct ThreadRow {
  int64_t row;    // row of the thread
  int warps;      // warps of a row
  int64_t slot;   // index among the rows that the grid processes at a time
  int64_t slots;  // number of these rows
  int thread;     // index within the row
};
__device__ inline ThreadRow row_place(int warps) {
  const int in_block = static_cast<int>(blockDim.x / 32) / warps, threads = warps * 32, thread = static_cast<int>(threadIdx.x);
  const int64_t slot = int64_t{blockIdx.x} * in_block + thread / threads;
  return {.row = slot, .warps = warps, .slot = slot, .slots = int64_t{gridDim.x} * in_block, .thread = thread % threads};
}

// Calls f(index of the pack, its first column).
template <int kN, int kPacks, class F>
__device__ void for_row(const ThreadRow& place, int64_t cols, const F& f) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t c = (int64_t{p} * place.warps * 32 + place.thread) * kN;
    if (c < cols) f(p, c);
  }
}

// Sum over a row's threads. With a block for each row, a barrier comes first, so `partial` can be
// reused.
__device__ inline float row_sum(const ThreadRow& place, float x) {
  if (place.warps == 1) return warp_sum(x);
  auto& partial = block_shared<float[32]>();
  __syncthreads();
  return block_sum(x, partial);
}

constexpr int64_t kRowShared = sizeof(float[32]);
constexpr int kWarpRows = 8;  // rows of a block if each has one warp

struct RowGrid {
  int warps;
  Grid grid;
  int64_t slots;
};
// A grid for `rows` rows with at most `most` blocks. `packs`: of a row, with kPacks for each
// thread.
inline RowGrid row_grid(int64_t rows, int64_t packs, int64_t per_thread, int64_t most) {
  const int warps = static_cast<int>(std::clamp<int64_t>((packs + 32 * per_thread - 1) / (32 * per_thread), 1, 32));
  const int64_t in_block = warps == 1 ? kWarpRows : 1, blocks = std::min(most, (rows + in_block - 1) / in_block);
  return {.warps = warps,
          .grid = {.blocks = blocks, .threads = static_cast<int>(in_block) * warps * 32, .shared = kRowShared},
          .slots = blocks * in_block};
}

// Calls f(elements of a pack, packs of a thread), as constants, for rows of up to 32768 columns; up
// to 16384 if they do not come in packs.
template <class F>
void with_row_packs(int64_t cols, bool aligned, const F& f) {
  const auto with = [&]<int kN>(std::integral_constant<int, kN> pack) {
    constexpr int64_t kMost = kN == 1 ? 16384 : 32768;
    require(cols <= kMost, text("rows of ", cols, " columns; the maximum is ", kMost));
    const int64_t threads = (cols + kN - 1) / kN;
    if (threads <= 1024) return f(pack, std::integral_constant<int, 1>{});
    if (kN > 1 || threads <= 4096) return f(pack, std::integral_constant<int, 4>{});
    if constexpr (kN == 1) f(pack, std::integral_constant<int, 16>{});
  };
  with_packs(aligned && cols % kPack == 0, with);
}

}  // namespace trireme
