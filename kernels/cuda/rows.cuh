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

// The same for rows that are wider than the threads' packs: calls f(first column) for each pack.
template <int kN, class F>
__device__ void for_wide_row(const ThreadRow& place, int64_t cols, const F& f) {
#pragma unroll 1
  for (int64_t c = int64_t{place.thread} * kN; c < cols; c += int64_t{place.warps} * 32 * kN) f(c);
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

constexpr int kMostRowThreads = 512;  // of a block: kernels that are compiled for it may use 128 registers

struct RowGrid {
  int warps;
  Grid grid;
  int64_t slots;
};
// A grid with a block for each row, or for kWarpRows rows of a warp each. `packs`: of a row, with
// `per_thread` for each thread; threads of rows that are wider than that come again.
inline RowGrid row_grid(int64_t rows, int64_t packs, int64_t per_thread) {
  const int64_t wanted = (packs + 32 * per_thread - 1) / (32 * per_thread);
  const int warps = static_cast<int>(std::clamp<int64_t>(wanted, 1, kMostRowThreads / 32));
  const int64_t in_block = warps == 1 ? kWarpRows : 1, blocks = (rows + in_block - 1) / in_block;
  return {.warps = warps,
          .grid = {.blocks = blocks, .threads = static_cast<int>(in_block) * warps * 32, .shared = kRowShared},
          .slots = blocks * in_block};
}
// The same for a kernel whose blocks walk rows: no more blocks than run at once.
template <class Kernel>
RowGrid walking_grid(Kernel* kernel, int64_t rows, int64_t packs, int64_t per_thread) {
  RowGrid g = row_grid(rows, packs, per_thread);
  const int64_t in_block = g.slots / g.grid.blocks;
  g.grid.blocks = std::min(g.grid.blocks, blocks_at_once(kernel, g.grid));
  g.slots = g.grid.blocks * in_block;
  return g;
}

// Packs of a thread, at most: of kPack columns, and of single ones. So rows have up to 32768 columns; up to 8192 if they do not
// come in packs.
constexpr int kMostPacks = 8, kMostSingles = 16;
constexpr int64_t kMostColumns = int64_t{kMostPacks} * kPack * kMostRowThreads;
constexpr int64_t kMostSingleColumns = int64_t{kMostSingles} * kMostRowThreads;

// Calls f(elements of a pack, packs of a thread), as constants.
template <class F>
void with_row_packs(int64_t cols, bool aligned, const F& f) {
  const auto with = [&]<int kN>(std::integral_constant<int, kN> pack) {
    constexpr int kFew = kN == 1 ? 4 : 2, kMost = kN == 1 ? kMostSingles : kMostPacks;
    constexpr int64_t kMostOfRow = kN == 1 ? kMostSingleColumns : kMostColumns;
    require(cols <= kMostOfRow, text("rows of ", cols, " columns; the maximum is ", kMostOfRow));
    if (cols <= kN * kMostRowThreads) return f(pack, std::integral_constant<int, 1>{});
    if (cols <= kFew * kN * kMostRowThreads) return f(pack, std::integral_constant<int, kFew>{});
    f(pack, std::integral_constant<int, kMost>{});
  };
  with_packs(aligned && cols % kPack == 0, with);
}

// The same for kernels that keep more for each column: packs of a thread are 0 for rows that its
// registers cannot keep.
template <class F>
void with_walked_row(int64_t cols, bool aligned, const F& f) {
  with_packs(aligned && cols % kPack == 0, [&]<int kN>(std::integral_constant<int, kN> pack) {
    if (cols <= kN * kMostRowThreads) return f(pack, std::integral_constant<int, 1>{});
    if (kN > 1 && cols <= 2 * kN * kMostRowThreads) return f(pack, std::integral_constant<int, 2>{});
    f(pack, std::integral_constant<int, 0>{});
  });
}

}  // namespace trireme
