// Attention's forward pass on tensor cores (Dao, "FlashAttention-2", 2023). A block has 64 queries
// of one head, each of its four warps 16 of them. Tiles of 64 keys and values arrive by cp.async,
// the next while this one is multiplied. Scores and sums are f32 in registers. Probabilities are
// rounded to bf16 for the second product, but summed unrounded.
#include "kernels/cuda/attention_sm80.cuh"

namespace trireme {
namespace {

template <int kSize>
struct Memory {
  Bf16 queries[kTileRows * kSize];
  Bf16 keys[2][kTileRows * kSize], values[2][kTileRows * kSize];
};

// One function, since queries, maxima, totals and sums in registers and both stages of tiles in
// shared memory live through the whole loop. A function for one step would take nearly all of them
// as parameters and hide nothing.
template <int kSize>
__global__ void __launch_bounds__(32 * kTileWarps)
    attention_forward_sm80(Bf16* out, float* lse, const Bf16* q, const Bf16* k, const Bf16* v, AttentionSizes s) {
  auto& memory = block_shared<Memory<kSize>>();
  const int warp = static_cast<int>(threadIdx.x / 32), g = static_cast<int>(threadIdx.x % 32 / 4),
            t = static_cast<int>(threadIdx.x % 4);
  const int64_t first = (int64_t{gridDim.x} - 1 - blockIdx.x) * kTileRows, h = blockIdx.y,
                b = blockIdx.z;  // the longest rows first
  const int64_t shared = h * s.shared / s.heads, stride = s.key_row;
  const Bf16* const keys = k + b * s.keys * stride + shared * kSize;
  const Bf16* const values = v + b * s.keys * stride + shared * kSize;
  const int64_t last = min(first + kTileRows, s.queries) - 1;

  const int64_t begin = s.first_tile(b, first, kTileRows), end = s.place(last) + 1;
  const float scale = s.scale * kLog2E;  // maxima are of unscaled scores

  fetch<kSize>(memory.queries, q + b * s.queries * s.query_row + h * kSize, s.query_row, first, s.queries);
  fetch<kSize>(memory.keys[0], keys, stride, begin, s.keys);
  fetch<kSize>(memory.values[0], values, stride, begin, s.keys);
  end_group();

  // For the thread's two rows, g and g + 8 of the warp's.
  int64_t seen[2], place[2];
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (int r = 0; r < 2; ++r) {
    const int64_t query = first + warp * kRowsOfWarp + g + 8 * r;
    seen[r] = query <= last ? s.first_seen(b, query) : s.keys, place[r] = query <= last ? s.place(query) : -1;
  }
  uint32_t own[kSize / 16][4];
  float sums[kSize / 8][4] = {};

  int stage = 0;
  for (int64_t tile = begin; tile < end; tile += kTileRows, stage ^= 1) {
    turn_tiles<kSize>(memory.keys, memory.values, stage, keys, values, stride, tile + kTileRows, end, s.keys);
    __syncthreads();
    if (tile == begin)
      for (int i = 0; i < kSize / 16; ++i) load_left<kSize>(own[i], memory.queries, warp * kRowsOfWarp, i);

    // 1. scores = q k^T
    float scores[kTileRows / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i) multiply_transposed<kSize>(scores, own[i], memory.keys[stage], i);

      // 2. probabilities, as powers of two. Most tiles are visible to all queries.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int from = static_cast<int>(max(seen[r] - tile, int64_t{0}));
      const int to = static_cast<int>(min(place[r] - tile, int64_t{kTileRows}));
      if (from > 0 || to < kTileRows - 1) {
#pragma unroll
        for (int j = 0; j < kTileRows / 8; ++j)
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e)
            if (const int column = 8 * j + 2 * t + e % 2; column < from || column > to) scores[j][e] = -INFINITY;
      }
      float high = top[r];
#pragma unroll
      for (int j = 0; j < kTileRows / 8; ++j)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) high = max_or_nan(high, scores[j][e]);
      for (int by = 1; by < 4; by *= 2) high = max_or_nan(high, __shfl_xor_sync(kAllLanes, high, by));
      const bool none = high == -INFINITY;  // of the keys so far is visible
      const float fade = none ? 1.0f : power_of_two((top[r] - high) * scale), base = none ? 0.0f : high * scale;
      total[r] *= fade, top[r] = high;
#pragma unroll
      for (int j = 0; j < kTileRows / 8; ++j)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          scores[j][e] = power_of_two(fmaf(scores[j][e], scale, -base));
          total[r] += scores[j][e];
        }
#pragma unroll
      for (int d = 0; d < kSize / 8; ++d)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) sums[d][e] *= fade;
    }

    // 3. sums += probabilities v
    add_product<kSize>(sums, scores, memory.values[stage]);
    __syncthreads();  // this stage is overwritten by the tile after the next
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    for (int by = 1; by < 4; by *= 2) total[r] += __shfl_xor_sync(kAllLanes, total[r], by);
    const int64_t query = first + warp * kRowsOfWarp + g + 8 * r;
    if (query > last) continue;
    if (t == 0) lse[(b * s.heads + h) * s.queries + query] = (top[r] * scale + log2f(total[r])) * kLn2;
    store_row<kSize>(out + ((b * s.queries + query) * s.heads + h) * kSize, sums, r, 1 / total[r]);
  }
}

template <int kSize>
void launch_forward(const Cuda& cuda, const AttentionForward& op, const AttentionSizes& s) {
  const Grid grid{.blocks = (s.queries + kTileRows - 1) / kTileRows,
                  .threads = 32 * kTileWarps,
                  .shared = sizeof(Memory<kSize>),
                  .blocks_y = s.heads,
                  .blocks_z = op.q.dim(0)};
  start(cuda, grid, attention_forward_sm80<kSize>, op.out.as<Bf16>(), op.lse.as<float>(), op.q.as<Bf16>(), op.k.as<Bf16>(),
        op.v.as<Bf16>(), s);
}

bool fits(const Tensor& q) { return q.dtype() == Dtype::bf16 && (q.dim(3) == 64 || q.dim(3) == 128); }

}  // namespace

bool fits_tensor_cores(const AttentionForward& op) { return fits(op.q) && in_packs({op.out, op.q, op.k, op.v}); }
bool fits_tensor_cores(const AttentionBackward& op) {
  return fits(op.q) && in_packs({op.dq, op.dk, op.dv, op.dout, op.q, op.k, op.v});
}

void attention_on_tensor_cores(const Cuda& cuda, const AttentionForward& op, const AttentionSizes& sizes) {
  require(sizes.scale > 0, text("attention with a scale of ", sizes.scale));
  sizes.size == 64 ? launch_forward<64>(cuda, op, sizes) : launch_forward<128>(cuda, op, sizes);
}

}  // namespace trireme
