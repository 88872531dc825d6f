// Attention's forward pass on tensor cores, for Ampere and later (Dao, "FlashAttention-2", 2023). A block has 64 queries of one
// head, each of its four warps 16 of them; tiles of 64 keys and values come by cp.async, the next while this one is multiplied.
// Scores and sums are f32 in registers; probabilities are rounded to bf16 for the second product, their sum is not.
//
// In shared memory a row of D elements lies in chunks of 8, chunk c of row r at place c ^ (r % 8): ldmatrix then meets no bank
// twice.
#include "kernels/cuda/attention.cuh"

namespace trireme {
namespace {

constexpr int kRows = 64, kWarps = 4, kOfWarp = 16;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <int kSize>
struct Memory {
  Bf16 queries[kRows * kSize];
  Bf16 keys[2][kRows * kSize], values[2][kRows * kSize];
};

template <int kSize>
__device__ Bf16* chunk(Bf16* tile, int row, int c) {
  return tile + row * kSize + (c ^ (row % 8)) * 8;
}

// Rows [first, first + kRows) of x, which begin `stride` apart; zeros from `rows` on.
template <int kSize>
__device__ void fetch(Bf16* tile, const Bf16* x, int64_t stride, int64_t first, int64_t rows) {
  constexpr int kChunks = kSize / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += 32 * kWarps) {
    const int row = i / kChunks, c = i % kChunks;
    const bool present = first + row < rows;
    copy_async(chunk<kSize>(tile, row, c), present ? x + (first + row) * stride + c * 8 : x, present);
  }
}

template <int kSize>
__global__ void __launch_bounds__(32 * kWarps)
    forward(Bf16* out, float* lse, const Bf16* q, const Bf16* k, const Bf16* v, AttentionSizes s) {
  auto& memory = block_shared<Memory<kSize>>();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32), g = lane / 4, t = lane % 4;
  const int64_t first = (int64_t{gridDim.x} - 1 - blockIdx.x) * kRows, h = blockIdx.y, b = blockIdx.z;  // the longest rows first
  const int64_t shared = h * s.shared / s.heads, stride = s.shared * kSize;
  const Bf16* const keys = k + (b * s.keys * s.shared + shared) * kSize;
  const Bf16* const values = v + (b * s.keys * s.shared + shared) * kSize;
  const int64_t last = min(first + kRows, s.queries) - 1;

  // The keys that any query of the block sees.
  int64_t begin = s.keys;
  for (int64_t query = first; query <= last; ++query) begin = min(begin, s.first_seen(b, query));
  begin = begin / kRows * kRows;
  const int64_t end = s.place(last) + 1;

  fetch<kSize>(memory.queries, q + (b * s.queries * s.heads + h) * kSize, s.heads * kSize, first, s.queries);
  fetch<kSize>(memory.keys[0], keys, stride, begin, s.keys);
  fetch<kSize>(memory.values[0], values, stride, begin, s.keys);
  end_group();

  // Of the thread's two rows, g and g + 8 of the warp's.
  int64_t seen[2], place[2];
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (int r = 0; r < 2; ++r) {
    const int64_t query = first + warp * kOfWarp + g + 8 * r;
    seen[r] = query <= last ? s.first_seen(b, query) : s.keys, place[r] = query <= last ? s.place(query) : -1;
  }
  uint32_t own[kSize / 16][4];
  float sums[kSize / 8][4] = {};

  int stage = 0;
  for (int64_t tile = begin; tile < end; tile += kRows, stage ^= 1) {
    if (tile + kRows < end) {
      fetch<kSize>(memory.keys[stage ^ 1], keys, stride, tile + kRows, s.keys);
      fetch<kSize>(memory.values[stage ^ 1], values, stride, tile + kRows, s.keys);
      end_group();
      wait_for_groups<1>();
    } else {
      wait_for_groups<0>();
    }
    __syncthreads();
    if (tile == begin)
      for (int i = 0; i < kSize / 16; ++i)
        load_matrices(own[i], chunk<kSize>(memory.queries, warp * kOfWarp + lane % 16, 2 * i + lane / 16));

    // 1. scores = q k^T: 16 x 64 of a warp
    float scores[kRows / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
#pragma unroll
      for (int j = 0; j < kRows / 16; ++j) {
        uint32_t other[4];
        load_matrices(other, chunk<kSize>(memory.keys[stage], 16 * j + lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2));
        multiply_add(scores[2 * j], own[i], other[0], other[1]);
        multiply_add(scores[2 * j + 1], own[i], other[2], other[3]);
      }

    // 2. probabilities, in powers of two
    float high[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t key = tile + 8 * j + 2 * t + e % 2;
        const bool visible = seen[e / 2] <= key && key <= place[e / 2];
        scores[j][e] = visible ? scores[j][e] * s.scale * kLog2E : -INFINITY;
        high[e / 2] = scores[j][e] > high[e / 2] || scores[j][e] != scores[j][e] ? scores[j][e] : high[e / 2];  // NaN stays
      }
    float fade[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      for (int by = 1; by < 4; by *= 2) {
        const float other = __shfl_xor_sync(kAllLanes, high[r], by);
        high[r] = other > high[r] || other != other ? other : high[r];
      }
      fade[r] = high[r] == -INFINITY ? 1.0f : exp2f(top[r] - high[r]);
      total[r] *= fade[r], top[r] = high[r];
    }
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[j][e] = scores[j][e] == -INFINITY ? 0.0f : exp2f(scores[j][e] - top[e / 2]);
        total[e / 2] += scores[j][e];
      }
#pragma unroll
    for (int d = 0; d < kSize / 8; ++d)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[d][e] *= fade[e / 2];

        // 3. sums += probabilities v
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const float(&left)[4] = scores[2 * i];
      const float(&right)[4] = scores[2 * i + 1];
      const uint32_t p[4] = {bf16_bits(left[1], left[0]), bf16_bits(left[3], left[2]), bf16_bits(right[1], right[0]),
                             bf16_bits(right[3], right[2])};
#pragma unroll
      for (int j = 0; j < kSize / 16; ++j) {
        uint32_t other[4];
        load_matrices_transposed(other, chunk<kSize>(memory.values[stage], 16 * i + lane % 16, 2 * j + lane / 16));
        multiply_add(sums[2 * j], p, other[0], other[1]);
        multiply_add(sums[2 * j + 1], p, other[2], other[3]);
      }
    }
    __syncthreads();  // the next tile but one comes where this one was
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    for (int by = 1; by < 4; by *= 2) total[r] += __shfl_xor_sync(kAllLanes, total[r], by);
    const int64_t query = first + warp * kOfWarp + g + 8 * r;
    if (query > last) continue;
    if (t == 0) lse[(b * s.heads + h) * s.queries + query] = (top[r] + log2f(total[r])) * kLn2;
    Bf16* const row = out + ((b * s.queries + query) * s.heads + h) * kSize + 2 * t;
#pragma unroll
    for (int d = 0; d < kSize / 8; ++d)
      *reinterpret_cast<uint32_t*>(row + 8 * d) = bf16_bits(sums[d][2 * r + 1] / total[r], sums[d][2 * r] / total[r]);
  }
}

template <int kSize>
void launch_forward(const Cuda& cuda, const AttentionForward& op, const AttentionSizes& s) {
  const Grid grid{.blocks = (s.queries + kRows - 1) / kRows,
                  .threads = 32 * kWarps,
                  .shared = sizeof(Memory<kSize>),
                  .blocks_y = s.heads,
                  .blocks_z = op.q.dim(0)};
  start(cuda, grid, forward<kSize>, op.out.as<Bf16>(), op.lse.as<float>(), op.q.as<Bf16>(), op.k.as<Bf16>(), op.v.as<Bf16>(), s);
}

}  // namespace

bool fits_tensor_cores(const AttentionForward& op) {
  const int64_t size = op.q.dim(3);
  return op.q.dtype() == Dtype::bf16 && (size == 64 || size == 128) && in_packs({op.out, op.q, op.k, op.v});
}

void attention_on_tensor_cores(const Cuda& cuda, const AttentionForward& op, const AttentionSizes& sizes) {
  sizes.size == 64 ? launch_forward<64>(cuda, op, sizes) : launch_forward<128>(cuda, op, sizes);
}

}  // namespace trireme
