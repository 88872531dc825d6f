// The tile of AVX512-BF16: each instruction multiplies 16 pairs and adds both products to 16 sums.
#include <immintrin.h>

#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/packing.h"

namespace trireme {

namespace {

constexpr int kTileRows = 12, kTileColumns = 32;  // 24 of 32 registers

[[gnu::target("avx512f,avx512bf16"), gnu::noinline]] void multiply_bf16(const std::byte* a, const std::byte* b, int64_t pairs,
                                                                        float* sums, Ahead ahead) {
  __m512 sum[kTileRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) sum[r][v] = _mm512_loadu_ps(sums + r * kTileColumns + v * 16);
  for (int64_t p = 0; p < pairs; ++p, a += 4 * kTileRows, b += 4 * kTileColumns, ahead.at += ahead.bytes) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead.at), _MM_HINT_T1);
    __m512i row[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) row[v] = _mm512_loadu_si512(b + 64 * v);
#pragma GCC unroll 12
    for (int r = 0; r < kTileRows; ++r) {
      int both;
      __builtin_memcpy(&both, a + 4 * r, sizeof both);
      const __m512i pair = _mm512_set1_epi32(both);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)pair, (__m512bh)row[v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(sums + r * kTileColumns + v * 16, sum[r][v]);
}

}  // namespace

const PackedTile& bf16_tile() {
  static constexpr PackedTile tile = tile_of<PairedBf16, PairedBf16, kTileRows, kTileColumns>(multiply_bf16);
  return tile;
}

const PackedTile& fastest_tile(Dtype operands) {
  return operands == Dtype::bf16 && __builtin_cpu_supports("avx512bf16") != 0 ? bf16_tile() : plain_tile(operands);
}

}  // namespace trireme
