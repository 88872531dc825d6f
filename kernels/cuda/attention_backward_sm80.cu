// Attention's backward pass on tensor cores (Dao, "FlashAttention-2", 2023), in two kernels that
// sum in registers in a fixed order. One, for queries (dq), walks keys; the other, for keys (dk,
// dv), walks the queries that see them, of all heads that share them. Both compute the scores and
// their gradients: seven products. One kernel would need five, but would add up dq in memory in a
// different order each time.
#include "kernels/cuda/attention_sm80.cuh"

namespace trireme {
namespace {

struct AttentionGradientsSm80 {
  Bf16 *dq, *dk, *dv;
  const Bf16 *dout, *q, *k, *v;
  const float *lse, *delta;  // [B, H, T]; delta = dout . out
};

template <int kSize>
struct QueryMemory {
  Bf16 queries[kTileRows * kSize], douts[kTileRows * kSize];
  Bf16 keys[2][kTileRows * kSize], values[2][kTileRows * kSize];
};

// A block for 64 queries of one head, each warp 16 of them. It is one function, since dq in
// registers and the tiles in shared memory live through the whole loop, and the scores and their
// gradients through its three steps. A function for one step would take nearly all of them as
// parameters and hide nothing.
template <int kSize>
__global__ void __launch_bounds__(32 * kTileWarps) attention_backward_queries_sm80(AttentionGradientsSm80 op, AttentionSizes s) {
  auto& memory = block_shared<QueryMemory<kSize>>();
  const int warp = static_cast<int>(threadIdx.x / 32), g = static_cast<int>(threadIdx.x % 32 / 4),
            t = static_cast<int>(threadIdx.x % 4);
  const int64_t first = (int64_t{gridDim.x} - 1 - blockIdx.x) * kTileRows, h = blockIdx.y,
                b = blockIdx.z;  // the longest rows first
  const int64_t shared = h * s.shared / s.heads, stride = s.key_row, queries = b * s.queries * s.query_row + h * kSize;
  const Bf16* const keys = op.k + b * s.keys * stride + shared * kSize;
  const Bf16* const values = op.v + b * s.keys * stride + shared * kSize;
  const int64_t last = min(first + kTileRows, s.queries) - 1;
  const int64_t begin = s.first_tile(b, first, kTileRows);

  fetch<kSize>(memory.queries, op.q + queries, s.query_row, first, s.queries);
  fetch<kSize>(memory.douts, op.dout + (b * s.queries * s.heads + h) * kSize, s.heads * kSize, first, s.queries);
  fetch<kSize>(memory.keys[0], keys, stride, begin, s.keys);
  fetch<kSize>(memory.values[0], values, stride, begin, s.keys);
  end_group();

  int64_t seen[2], place[2];
  float lse[2], delta[2];
  for (int r = 0; r < 2; ++r) {
    const int64_t query = first + warp * kRowsOfWarp + g + 8 * r, i = (b * s.heads + h) * s.queries + query;
    const bool present = query <= last;
    seen[r] = present ? s.first_seen(b, query) : s.keys, place[r] = present ? query : -1;
    lse[r] = present ? op.lse[i] * kLog2E : 0.0f, delta[r] = present ? op.delta[i] : 0.0f;
  }
  float sums[kSize / 8][4] = {};

  int stage = 0;
  for (int64_t tile = begin; tile <= last; tile += kTileRows, stage ^= 1) {
    turn_tiles<kSize>(memory.keys, memory.values, stage, keys, values, stride, tile + kTileRows, last + 1, s.keys);
    __syncthreads();
    // 1. scores = q k^T, and the gradients of the probabilities, dout v^T
    float scores[kTileRows / 8][4] = {}, dscores[kTileRows / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i) {
      uint32_t left[4];
      load_left<kSize>(left, memory.queries, warp * kRowsOfWarp, i);
      multiply_transposed<kSize>(scores, left, memory.keys[stage], i);
      load_left<kSize>(left, memory.douts, warp * kRowsOfWarp, i);
      multiply_transposed<kSize>(dscores, left, memory.values[stage], i);
    }
    // 2. gradients of the scores
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int from = static_cast<int>(max(seen[r] - tile, int64_t{0}));
      const int to = static_cast<int>(min(place[r] - tile, int64_t{kTileRows}));
#pragma unroll
      for (int j = 0; j < kTileRows / 8; ++j)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          const int column = 8 * j + 2 * t + e % 2;
          const float p = power_of_two(scores[j][e] * (s.scale * kLog2E) - lse[r]);
          dscores[j][e] = from <= column && column <= to ? p * (dscores[j][e] - delta[r]) * s.scale : 0.0f;
        }
    }
    // 3. dq += dscores k
    add_product<kSize>(sums, dscores, memory.keys[stage]);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t query = first + warp * kRowsOfWarp + g + 8 * r;
    if (query <= last) store_row<kSize>(op.dq + queries + query * s.query_row, sums, r, 1.0f);
  }
}

template <int kSize>
constexpr int kQueries = kSize == 64 ? 64 : 32;  // of a tile: with 128 columns, the sums leave registers for no more

template <int kSize>
struct KeyMemory {
  Bf16 keys[kTileRows * kSize], values[kTileRows * kSize];
  Bf16 queries[2][kQueries<kSize> * kSize], douts[2][kQueries<kSize> * kSize];
  float lse[2][kQueries<kSize>], delta[2][kQueries<kSize>];
  int from[2][kQueries<kSize>];  // first key that the query sees, relative to the block's first
};

// Loads tile `tile` of the queries of head h.
template <int kSize>
__device__ void fetch_queries(KeyMemory<kSize>& memory, int stage, const AttentionGradientsSm80& op, const AttentionSizes& s,
                              int64_t b, int64_t h, int64_t tile, int64_t first) {
  const int64_t queries = b * s.queries * s.query_row + h * kSize, douts = (b * s.queries * s.heads + h) * kSize;
  fetch<kSize, kQueries<kSize>>(memory.queries[stage], op.q + queries, s.query_row, tile, s.queries);
  fetch<kSize, kQueries<kSize>>(memory.douts[stage], op.dout + douts, s.heads * kSize, tile, s.queries);
  end_group();
  if (threadIdx.x >= kQueries<kSize>) return;
  const int64_t query = tile + threadIdx.x, i = (b * s.heads + h) * s.queries + query;
  const bool present = query < s.queries;
  memory.lse[stage][threadIdx.x] = present ? op.lse[i] * kLog2E : 0.0f;
  memory.delta[stage][threadIdx.x] = present ? op.delta[i] : 0.0f;
  memory.from[stage][threadIdx.x] =
      present ? static_cast<int>(max(s.first_seen(b, query) - first, int64_t{0})) : kTileRows;  // sees no key
}

// A block for 64 keys of one key-value head, each warp 16 of them. Products are transposed: a row
// is a key. It is one function as that for queries: dk, dv and the tiles live through the whole
// loop, and each of its three steps reads registers that the previous one has filled.
template <int kSize>
__global__ void __launch_bounds__(32 * kTileWarps) attention_backward_keys_sm80(AttentionGradientsSm80 op, AttentionSizes s) {
  auto& memory = block_shared<KeyMemory<kSize>>();
  const int warp = static_cast<int>(threadIdx.x / 32), g = static_cast<int>(threadIdx.x % 32 / 4),
            t = static_cast<int>(threadIdx.x % 4);
  const int64_t first = int64_t{blockIdx.x} * kTileRows, shared = blockIdx.y, b = blockIdx.z, group = s.heads / s.shared;
  const int64_t keys = b * s.keys * s.key_row + shared * kSize, last = min(first + kTileRows, s.keys) - 1;
  // Documents and windows are ordered: after the first tile that does not see the block's last key,
  // none does. Between `tiles` and `beyond` do.
  int64_t tiles = 1, beyond = (s.queries - first + kQueries<kSize> - 1) / kQueries<kSize>;
  while (tiles < beyond) {
    const int64_t middle = (tiles + beyond) / 2;
    if (s.first_seen(b, first + middle * kQueries<kSize>) <= last)
      tiles = middle + 1;
    else
      beyond = middle;
  }

  fetch<kSize>(memory.keys, op.k + keys, s.key_row, first, s.keys);
  fetch<kSize>(memory.values, op.v + keys, s.key_row, first, s.keys);
  fetch_queries<kSize>(memory, 0, op, s, b, shared * group, first, first);
  float dk[kSize / 8][4] = {}, dv[kSize / 8][4] = {};

  int stage = 0;
  for (int64_t step = 0; step < group * tiles; ++step, stage ^= 1) {
    const int64_t next = step + 1, tile = first + step % tiles * kQueries<kSize>;
    if (next < group * tiles) {
      fetch_queries<kSize>(memory, stage ^ 1, op, s, b, shared * group + next / tiles, first + next % tiles * kQueries<kSize>,
                           first);
      wait_for_groups<1>();
    } else {
      wait_for_groups<0>();
    }
    __syncthreads();
    // 1. scores = k q^T and the gradients of the probabilities, v dout^T
    float scores[kQueries<kSize> / 8][4] = {}, dscores[kQueries<kSize> / 8][4] = {};
#pragma unroll 2  // full unrolling would keep an address for each
    for (int i = 0; i < kSize / 16; ++i) {
      uint32_t left[4];
      load_left<kSize>(left, memory.keys, warp * kRowsOfWarp, i);
      multiply_transposed<kSize>(scores, left, memory.queries[stage], i);
      load_left<kSize>(left, memory.values, warp * kRowsOfWarp, i);
      multiply_transposed<kSize>(dscores, left, memory.douts[stage], i);
    }
    // 2. probabilities and gradients of the scores
    const int place = static_cast<int>(tile - first);  // of the tile's first query, relative to the block's first key
#pragma unroll
    for (int j = 0; j < kQueries<kSize> / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * j + 2 * t + e % 2, key = warp * kRowsOfWarp + g + e / 2 * 8;
        const bool visible = memory.from[stage][column] <= key && key <= place + column;
        const float p = visible ? power_of_two(scores[j][e] * (s.scale * kLog2E) - memory.lse[stage][column]) : 0.0f;
        scores[j][e] = p;
        dscores[j][e] = visible ? p * (dscores[j][e] - memory.delta[stage][column]) * s.scale : 0.0f;
      }
    // 3. dv += p dout, dk += dscores q
    add_product<kSize>(dv, scores, memory.douts[stage]);
    add_product<kSize>(dk, dscores, memory.queries[stage]);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t key = first + warp * kRowsOfWarp + g + 8 * r, at = keys + key * s.key_row;
    if (key > last) continue;
    store_row<kSize>(op.dk + at, dk, r, 1.0f);
    store_row<kSize>(op.dv + at, dv, r, 1.0f);
  }
}

template <int kSize>
void launch_backward(const Cuda& cuda, const AttentionGradientsSm80& b, const AttentionSizes& s, int64_t batch) {
  Grid grid{.blocks = (s.queries + kTileRows - 1) / kTileRows,
            .threads = 32 * kTileWarps,
            .shared = sizeof(QueryMemory<kSize>),
            .blocks_y = s.heads,
            .blocks_z = batch};
  start(cuda, grid, attention_backward_queries_sm80<kSize>, b, s);
  grid.shared = sizeof(KeyMemory<kSize>), grid.blocks_y = s.shared;
  start(cuda, grid, attention_backward_keys_sm80<kSize>, b, s);
}

}  // namespace

void attention_on_tensor_cores(const Cuda& cuda, const AttentionBackward& op, const AttentionSizes& sizes, const float* delta) {
  const AttentionGradientsSm80 b{.dq = op.dq.as<Bf16>(),
                                 .dk = op.dk.as<Bf16>(),
                                 .dv = op.dv.as<Bf16>(),
                                 .dout = op.dout.as<Bf16>(),
                                 .q = op.q.as<Bf16>(),
                                 .k = op.k.as<Bf16>(),
                                 .v = op.v.as<Bf16>(),
                                 .lse = op.lse.as<float>(),
                                 .delta = delta};
  sizes.size == 64 ? launch_backward<64>(cuda, b, sizes, op.q.dim(0)) : launch_backward<128>(cuda, b, sizes, op.q.dim(0));
}

}  // namespace trireme
