// Attention of any dtype and head size in f32 arithmetic, without tensor cores. A block has 32
// queries (for dk and dv, 32 keys) of one head and walks the tiles of 32 keys (queries) that they
// see. A warp has 4 of its rows, a lane one of the tile's. Deterministic: every sum has one owner.
#include <optional>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/fused_attention.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

constexpr int kTile = 32, kWarps = 8, kRows = kTile / kWarps;  // rows of a warp
constexpr int kMostSize = 256, kColumns = kMostSize / 32;      // columns of a lane

// Tiles of rows of up to kMostSize columns in f32. Rows are padded by one element, so that lanes
// reading a column have no bank conflicts.
struct Tile {
  float* data;
  int64_t stride;
  __device__ float* row(int64_t i) const { return data + i * stride; }
};
__device__ Tile tile_number(int number, int64_t size) {
  return {reinterpret_cast<float*>(shared_bytes()) + number * kTile * (size + 1), size + 1};
}
// Memory after `count` tiles, for exchanges between the lanes of each warp.
constexpr int64_t kWeights = kTile * 33;
int64_t tiles_bytes(int count, int64_t size) { return (count * kTile * (size + 1) + kWeights) * 4; }
constexpr int kForwardTiles = 3, kBackwardTiles = 4;
// Largest size of heads of which so many tiles fit into the memory that a block's threads share.
int64_t most_size(int tiles) {
  return std::min<int64_t>(kMostSize, (most_shared_bytes() / 4 - kWeights) / (int64_t{tiles} * kTile) - 1);
}

// One head of all tokens of a row of the batch.
template <class T>
struct HeadRows {
  const T* first;
  int64_t row, tokens;  // elements between tokens
};
template <class T>
__device__ HeadRows<T> head_rows(const T* x, int64_t b, int64_t head, int64_t tokens, int64_t row, int64_t size) {
  return {x + b * tokens * row + head * size, row, tokens};
}

// Loads tokens [first, first + kTile) of x; zeros beyond the end.
template <class T>
__device__ void load_tile(Tile tile, const HeadRows<T>& x, int64_t first, int64_t size) {
  for (int64_t i = threadIdx.x; i < kTile * size; i += blockDim.x) {
    const int64_t token = first + i / size, d = i % size;
    tile.row(i / size)[d] = token < x.tokens ? to_float(x.first[token * x.row + d]) : 0.0f;
  }
}

struct WarpLane {
  int lane = static_cast<int>(threadIdx.x % 32), first = static_cast<int>(threadIdx.x / 32) * kRows;  // the warp's first row
};

__device__ float* weights_of(int tiles, int64_t size, WarpLane at) { return tile_number(tiles, size).data + at.first * 33; }

// to[r] = dot product of the warp's row r of a and the lane's row of b.
__device__ void dots(float (&to)[kRows], Tile a, Tile b, WarpLane at, int64_t size) {
  for (float& sum : to) sum = 0;
  const float* mine = b.row(at.lane);
  for (int64_t d = 0; d < size; ++d)
#pragma unroll
    for (int r = 0; r < kRows; ++r) to[r] += a.row(at.first + r)[d] * mine[d];
}

// sums[r][.] += the sum over lanes of weight[r] times the lane's row of b. A lane has every 32nd
// column. `told` is the warp's memory for weights: [kRows, 33].
__device__ void add_weighted(float (&sums)[kRows][kColumns], const float (&weight)[kRows], Tile b, float* told, WarpLane at,
                             int64_t size) {
  __syncwarp();
  for (int r = 0; r < kRows; ++r) told[r * 33 + at.lane] = weight[r];
  __syncwarp();
  for (int i = 0; i < kTile; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (at.lane + 32 * j >= size) break;
      const float x = b.row(i)[at.lane + 32 * j];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][j] += told[r * 33 + i] * x;
    }
}

template <class T>
__device__ void store_row(T* to, const float (&from)[kColumns], float factor, WarpLane at, int64_t size) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j)
    if (at.lane + 32 * j < size) to[at.lane + 32 * j] = rounded<T>(from[j] * factor);
}

template <class T>
__global__ void attention_forward(T* out, float* lse, const T* q, const T* k, const T* v, AttentionSizes s) {
  const WarpLane at;
  const int64_t first = int64_t{blockIdx.x} * kTile, h = blockIdx.y, b = blockIdx.z, shared = h * s.shared / s.heads;
  const Tile queries = tile_number(0, s.size), keys = tile_number(1, s.size), values = tile_number(2, s.size);
  load_tile(queries, head_rows(q, b, h, s.queries, s.query_row, s.size), first, s.size);
  float sums[kRows][kColumns] = {}, top[kRows], total[kRows] = {};
  int64_t seen[kRows], place[kRows];
  const int64_t last = min(first + kTile, s.queries) - 1;
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = first + at.first + r;
    top[r] = -INFINITY, seen[r] = t <= last ? s.first_seen(b, t) : s.keys, place[r] = t <= last ? s.place(t) : -1;
  }
  for (int64_t tile = s.first_tile(b, first, kTile); tile <= s.place(last); tile += kTile) {  // warps without a row only load
    __syncthreads();
    load_tile(keys, head_rows(k, b, shared, s.keys, s.key_row, s.size), tile, s.size);
    load_tile(values, head_rows(v, b, shared, s.keys, s.key_row, s.size), tile, s.size);
    __syncthreads();
    if (first + at.first > last) continue;
    float score[kRows];
    dots(score, queries, keys, at, s.size);
    for (int r = 0; r < kRows; ++r) {
      const int64_t key = tile + at.lane;
      const bool visible = seen[r] <= key && key <= place[r];
      score[r] = visible ? score[r] * s.scale : -INFINITY;
      const float high = max(top[r], warp_max(score[r]));
      const float fade = high == -INFINITY ? 1.0f : expf(top[r] - high);
      score[r] = visible ? expf(score[r] - high) : 0.0f;
      total[r] = total[r] * fade + warp_sum(score[r]);
      top[r] = high;
      for (int j = 0; j < kColumns; ++j) sums[r][j] *= fade;
    }
    add_weighted(sums, score, values, weights_of(3, s.size, at), at, s.size);
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = first + at.first + r;
    if (t > last) break;
    store_row(out + ((b * s.queries + t) * s.heads + h) * s.size, sums[r], 1 / total[r], at, s.size);
    if (at.lane == 0) lse[(b * s.heads + h) * s.queries + t] = top[r] + logf(total[r]);
  }
}

// delta[b, h, t] = dout . out, each by one warp.
template <class T>
__global__ void row_products(float* delta, const T* dout, const T* out, int64_t n, int64_t queries, int64_t heads, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;  // (b, t, h)
  if (i >= n) return;
  float sum = 0;
  for (int64_t d = threadIdx.x % 32; d < size; d += 32) sum += to_float(dout[i * size + d]) * to_float(out[i * size + d]);
  sum = warp_sum(sum);
  const int64_t h = i % heads, t = i / heads % queries, b = i / heads / queries;
  if (threadIdx.x % 32 == 0) delta[(b * heads + h) * queries + t] = sum;
}

template <class T>
struct AttentionGradients {
  T *dq, *dk, *dv;
  const T *dout, *q, *k, *v;
  const float *lse, *delta;
};

template <class T>
__global__ void attention_backward_queries(AttentionGradients<T> op, AttentionSizes s) {
  const WarpLane at;
  const int64_t first = int64_t{blockIdx.x} * kTile, h = blockIdx.y, b = blockIdx.z, shared = h * s.shared / s.heads;
  const Tile queries = tile_number(0, s.size), douts = tile_number(1, s.size);
  const Tile keys = tile_number(2, s.size), values = tile_number(3, s.size);
  load_tile(queries, head_rows(op.q, b, h, s.queries, s.query_row, s.size), first, s.size);
  load_tile(douts, head_rows(op.dout, b, h, s.queries, s.heads * s.size, s.size), first, s.size);
  float sums[kRows][kColumns] = {};
  const int64_t last = min(first + kTile, s.queries) - 1;
  for (int64_t tile = s.first_tile(b, first, kTile); tile <= last; tile += kTile) {
    __syncthreads();
    load_tile(keys, head_rows(op.k, b, shared, s.keys, s.key_row, s.size), tile, s.size);
    load_tile(values, head_rows(op.v, b, shared, s.keys, s.key_row, s.size), tile, s.size);
    __syncthreads();
    if (first + at.first > last) continue;
    float score[kRows], dscore[kRows];
    dots(score, queries, keys, at, s.size);
    dots(dscore, douts, values, at, s.size);
    for (int r = 0; r < kRows; ++r) {
      const int64_t t = first + at.first + r, key = tile + at.lane, i = (b * s.heads + h) * s.queries + t;
      const bool visible = t <= last && key <= t && s.first_seen(b, t) <= key;
      dscore[r] = visible ? expf(score[r] * s.scale - op.lse[i]) * (dscore[r] - op.delta[i]) * s.scale : 0.0f;
    }
    add_weighted(sums, dscore, keys, weights_of(4, s.size, at), at, s.size);
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = first + at.first + r;
    if (t <= last) store_row(op.dq + (b * s.queries + t) * s.query_row + h * s.size, sums[r], 1.0f, at, s.size);
  }
}

template <class T>
__global__ void attention_backward_keys(AttentionGradients<T> op, AttentionSizes s) {
  const WarpLane at;
  const int64_t first = int64_t{blockIdx.x} * kTile, shared = blockIdx.y, b = blockIdx.z, group = s.heads / s.shared;
  const Tile keys = tile_number(0, s.size), values = tile_number(1, s.size);
  const Tile queries = tile_number(2, s.size), douts = tile_number(3, s.size);
  load_tile(keys, head_rows(op.k, b, shared, s.keys, s.key_row, s.size), first, s.size);
  load_tile(values, head_rows(op.v, b, shared, s.keys, s.key_row, s.size), first, s.size);
  float dk[kRows][kColumns] = {}, dv[kRows][kColumns] = {};
  const int64_t last = min(first + kTile, s.keys) - 1, end = s.window > 0 ? min(s.queries, last + s.window) : s.queries;
  for (int64_t h = shared * group; h < (shared + 1) * group; ++h)
    for (int64_t tile = first; tile < end; tile += kTile) {
      __syncthreads();
      load_tile(queries, head_rows(op.q, b, h, s.queries, s.query_row, s.size), tile, s.size);
      load_tile(douts, head_rows(op.dout, b, h, s.queries, s.heads * s.size, s.size), tile, s.size);
      __syncthreads();
      if (first + at.first > last) continue;
      const int64_t t = tile + at.lane, i = (b * s.heads + h) * s.queries + t, seen = t < s.queries ? s.first_seen(b, t) : s.keys;
      float score[kRows], dscore[kRows];
      dots(score, keys, queries, at, s.size);
      dots(dscore, values, douts, at, s.size);
      for (int r = 0; r < kRows; ++r) {
        const int64_t key = first + at.first + r;
        const bool visible = t < s.queries && key <= t && seen <= key;
        score[r] = visible ? expf(score[r] * s.scale - op.lse[i]) : 0.0f;
        dscore[r] = visible ? score[r] * (dscore[r] - op.delta[i]) * s.scale : 0.0f;
      }
      add_weighted(dv, score, douts, weights_of(4, s.size, at), at, s.size);
      add_weighted(dk, dscore, queries, weights_of(4, s.size, at), at, s.size);
    }
  for (int r = 0; r < kRows; ++r) {
    const int64_t key = first + at.first + r, i = (b * s.keys + key) * s.key_row + shared * s.size;
    if (key > last) break;
    store_row(op.dk + i, dk[r], 1.0f, at, s.size);
    store_row(op.dv + i, dv[r], 1.0f, at, s.size);
  }
}

template <class Op>
AttentionSizes sizes_of(const Op& op, int tiles) {
  const int64_t most = most_size(tiles);
  require(op.q.dim(3) <= most, text("attention on CUDA with heads of size ", op.q.dim(3), "; the maximum on this GPU is ", most));
  return {.queries = op.q.dim(1),
          .keys = op.k.dim(1),
          .heads = op.q.dim(2),
          .shared = op.k.dim(2),
          .size = op.q.dim(3),
          .window = op.window,
          .query_row = row_of(op.q, op.qkv),
          .key_row = row_of(op.k, op.qkv),
          .scale = op.scale,
          .document_start = op.document_start ? op.document_start.template as<int32_t>() : nullptr};
}

// A grid with a block for each tile of queries (or keys), for so many heads and all rows, with so
// many tiles in shared memory.
Grid tiles_grid(const Tensor& q, int64_t heads, int tiles) {
  return {.blocks = (q.dim(1) + kTile - 1) / kTile,
          .threads = 32 * kWarps,
          .shared = tiles_bytes(tiles, q.dim(3)),
          .blocks_y = heads,
          .blocks_z = q.dim(0)};
}

// True if the fused kernels are to compute this op: the run has chosen them for its shape, and they
// can read the tensors.
template <class Op>
std::optional<AttentionShape> fused_shape(const Cuda& cuda, const Op& op, std::initializer_list<Tensor> tensors) {
  const std::optional<AttentionShape> shape = op.shape();
  if (!shape || cuda.attention == nullptr || cuda.attention->empty()) return std::nullopt;
  for (const Tensor& t : tensors)
    if (reinterpret_cast<uintptr_t>(t.data()) % 16 != 0) return std::nullopt;
  const auto at = cuda.attention->find(shape->words());
  return at != cuda.attention->end() && at->second == "cudnn" ? shape : std::nullopt;
}

}  // namespace

void launch(const Cuda& cuda, const AttentionForward& op) {
  if (const auto shape = fused_shape(cuda, op, {op.out, op.lse, op.q, op.k, op.v, op.document_start}))
    return fused_attention(cuda, *shape, op);
  const AttentionSizes s = sizes_of(op, kForwardTiles);
  if (fits_tensor_cores(op)) return attention_on_tensor_cores(cuda, op, s);
  const Grid grid = tiles_grid(op.q, s.heads, kForwardTiles);
  with_dtype(op.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    start(cuda, grid, attention_forward<T>, op.out.as<T>(), op.lse.as<float>(), op.q.as<T>(), op.k.as<T>(), op.v.as<T>(), s);
  });
}

void launch(const Cuda& cuda, const AttentionBackward& op) {
  if (const auto shape = fused_shape(cuda, op, {op.dq, op.dk, op.dv, op.dout, op.out, op.lse, op.q, op.k, op.v, op.document_start}))
    return fused_attention(cuda, *shape, op);
  const AttentionSizes s = sizes_of(op, kBackwardTiles);
  const int64_t rows = op.q.dim(0) * s.queries * s.heads;
  auto* delta = static_cast<float*>(scratch(cuda, rows * 4));
  with_dtype(op.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const AttentionGradients<T> b{.dq = op.dq.as<T>(),
                                  .dk = op.dk.as<T>(),
                                  .dv = op.dv.as<T>(),
                                  .dout = op.dout.as<T>(),
                                  .q = op.q.as<T>(),
                                  .k = op.k.as<T>(),
                                  .v = op.v.as<T>(),
                                  .lse = op.lse.as<float>(),
                                  .delta = delta};
    start(cuda, {.blocks = (rows + kWarps - 1) / kWarps, .threads = 32 * kWarps}, row_products<T>, delta, b.dout, op.out.as<T>(),
          rows, s.queries, s.heads, s.size);
    if (fits_tensor_cores(op)) return attention_on_tensor_cores(cuda, op, s, delta);
    start(cuda, tiles_grid(op.q, s.heads, kBackwardTiles), attention_backward_queries<T>, b, s);
    start(cuda, tiles_grid(op.q, s.shared, kBackwardTiles), attention_backward_keys<T>, b, s);
  });
}

KernelLimits kernel_limits() {
  return {.shared_bytes = most_shared_bytes(),
          .head_size = most_size(kBackwardTiles),
          .pack = kPack,
          .width = kMostColumns,
          .odd_width = kMostSingleColumns};
}

}  // namespace trireme
