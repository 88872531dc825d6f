// Rounds tensors to 8 bits by two kernels. The first finds the largest magnitudes of parts. The
// second reads tiles of x once, rounds them, and writes them plain and transposed.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/quantize.h"

namespace trireme {
namespace {

constexpr int kTileRows = 128, kTileCols = 64;  // of a tile: 128 bytes of a row of bf16 x, and of a transposed row
constexpr int kHigh = 4, kWide = kPack;         // rows and columns of a thread in a tile
constexpr int kAcross = kTileCols / kWide;      // threads in a row of the tile
static_assert(kTileRows / kHigh * kAcross == kThreads);

// Maximum over the block's threads, returned on each of them.
__device__ uint32_t block_max(uint32_t x, uint32_t* partial) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_max(partial[threadIdx.x % (kThreads / 32)]);
}

// parts[b] = the bits of the largest |x| in part b. Moves n elements.
template <class X, int kN>
__global__ void __launch_bounds__(kThreads) largest_magnitudes(uint32_t* parts, const X* x, int64_t n) {
  uint32_t most = 0;
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count];
    load<count>(v, x + i);
    for (const float element : v) most = max(most, __float_as_uint(element) & 0x7fffffffu);
  });
  most = block_max(most, block_shared<uint32_t[kThreads / 32]>());
  if (threadIdx.x == 0) parts[blockIdx.x] = most;
}

struct QuantizedTile {
  uint32_t partial[kThreads / 32];
  uint32_t words[kTileCols][kTileRows / kHigh + 1];  // each holds four rows of a column
};

// Arguments of the second kernel. y or transposed may be absent.
template <class Y, class X>
struct Problem {
  Y *y, *transposed;
  float* scale;
  const X* x;
  const uint32_t* parts;
  int count;  // number of parts
  int64_t rows, cols;
};

// v = elements [c, c + kWide) of row n; zeros beyond the end. kPacked: rows begin and end at
// multiples of kWide elements.
template <bool kPacked, class Y, class X>
__device__ void load_row(float (&v)[kWide], const Problem<Y, X>& p, int64_t n, int64_t c) {
  for (float& element : v) element = 0;
  if constexpr (kPacked) {
    if (n < p.rows && c < p.cols) load<kWide>(v, p.x + n * p.cols + c);
  } else {
    for (int i = 0; i < kWide; ++i)
      if (n < p.rows && c + i < p.cols) v[i] = to_float(p.x[n * p.cols + c + i]);
  }
}

template <class Y>
__device__ uint64_t rounded_row(const float (&v)[kWide], float inverse) {
  uint64_t bytes = 0;
#pragma unroll
  for (int i = 0; i < kWide; i += 2) bytes |= uint64_t{float8_bits<Y>(v[i + 1] * inverse, v[i] * inverse)} << 8 * i;
  return bytes;
}

template <bool kPacked, class Y, class X>
__device__ void store_rounded_row(const Problem<Y, X>& p, uint64_t bytes, int64_t n, int64_t c) {
  if (n >= p.rows) return;
  if constexpr (kPacked) {
    if (c < p.cols) *reinterpret_cast<uint64_t*>(p.y + n * p.cols + c) = bytes;
  } else {
    for (int i = 0; i < kWide && c + i < p.cols; ++i) p.y[n * p.cols + c + i].bits = static_cast<uint8_t>(bytes >> 8 * i);
  }
}

// 16 rows of column c of the tile, from row `first` on.
template <bool kPacked, class Y, class X>
__device__ void store_column(const Problem<Y, X>& p, const QuantizedTile& tile, int64_t row, int64_t col, int first, int c) {
  if (col >= p.cols) return;
  Y* to = p.transposed + col * p.rows + row;
  if constexpr (kPacked) {
    if (row >= p.rows) return;
    Pack<uint32_t, 4> all;
    for (int i = 0; i < 4; ++i) all.at[i] = tile.words[c][first / 4 + i];
    *reinterpret_cast<Pack<uint32_t, 4>*>(to) = all;
  } else {
    for (int i = 0; i < 16 && row + i < p.rows; ++i)
      to[i].bits = static_cast<uint8_t>(tile.words[c][(first + i) / 4] >> 8 * ((first + i) % 4));
  }
}

// One tile per block. Reads n elements, writes n bytes for each of y and transposed.
template <class Y, class X, bool kPacked>
__global__ void __launch_bounds__(kThreads) quantize(Problem<Y, X> p) {
  auto& tile = block_shared<QuantizedTile>();
  const int me = static_cast<int>(threadIdx.x), column = me % kAcross * kWide, line = me / kAcross;
  // Loads x while the scale is computed.
  const int64_t top = int64_t{blockIdx.y} * kTileRows, left = int64_t{blockIdx.x} * kTileCols;
  float v[kHigh][kWide];
#pragma unroll
  for (int i = 0; i < kHigh; ++i) load_row<kPacked>(v[i], p, top + line * kHigh + i, left + column);
  uint32_t most = 0;
  for (int i = me; i < p.count; i += kThreads) most = max(most, p.parts[i]);
  const QuantizeScale s = quantize_scale<Y>(block_max(most, tile.partial));
  if (me == 0 && blockIdx.x == 0 && blockIdx.y == 0) *p.scale = s.scale;

  uint64_t rows[kHigh];
#pragma unroll
  for (int i = 0; i < kHigh; ++i) {
    const int64_t n = top + line * kHigh + i;
    rows[i] = rounded_row<Y>(v[i], s.inverse);
    if (p.y != nullptr) store_rounded_row<kPacked>(p, rows[i], n, left + column);
  }
  if (p.transposed == nullptr) return;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    uint32_t word = 0;
    for (int r = 0; r < kHigh; ++r) word |= static_cast<uint32_t>(rows[r] >> 8 * i & 0xff) << 8 * r;
    tile.words[column + i][line] = word;
  }
  __syncthreads();
  // Neighbouring threads write neighbouring rows of one column.
  constexpr int kEach = kTileRows / 16;
#pragma unroll
  for (int i = me; i < kTileCols * kEach; i += kThreads) {
    const int c = i / kEach, first = i % kEach * 16;
    store_column<kPacked>(p, tile, top + first, left + c, first, c);
  }
}

template <class Y, class X>
void quantize_tensor(const Cuda& cuda, const Quantize& op) {
  const int64_t n = op.x.size();
  Grid grid = grid_for_packs(n, kPack);
  grid.blocks = std::max<int64_t>(grid.blocks, 1), grid.shared = sizeof(uint32_t[kThreads / 32]);
  auto* parts = static_cast<uint32_t*>(scratch(cuda, 4 * grid.blocks));
  with_packs(in_packs({op.x}), [&](auto pack) { start(cuda, grid, largest_magnitudes<X, pack>, parts, op.x.as<X>(), n); });

  const Problem<Y, X> p{.y = op.y ? op.y.as<Y>() : nullptr,
                        .transposed = op.transposed ? op.transposed.as<Y>() : nullptr,
                        .scale = op.scale.as<float>(),
                        .x = op.x.as<X>(),
                        .parts = parts,
                        .count = static_cast<int>(grid.blocks),
                        .rows = op.x.rows(),
                        .cols = op.x.cols()};
  const bool packed = in_packs({op.x, op.y, op.transposed}) && p.cols % kWide == 0 && p.rows % 16 == 0;
  const Grid tiles{.blocks = std::max<int64_t>(1, (p.cols + kTileCols - 1) / kTileCols),
                   .threads = kThreads,
                   .shared = sizeof(QuantizedTile),
                   .blocks_y = std::max<int64_t>(1, (p.rows + kTileRows - 1) / kTileRows)};
  packed ? start(cuda, tiles, quantize<Y, X, true>, p) : start(cuda, tiles, quantize<Y, X, false>, p);
}

}  // namespace

void launch(const Cuda& cuda, const Quantize& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using X = decltype(zero);
    op.dtype() == Dtype::e4m3 ? quantize_tensor<E4m3, X>(cuda, op) : quantize_tensor<E5m2, X>(cuda, op);
  });
}

}  // namespace trireme
