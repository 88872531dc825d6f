// The tile of AVX512-BF16: each instruction multiplies 16 pairs and adds both products to 16 sums.
#include <immintrin.h>

#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/packing.h"

namespace trireme {

namespace {

constexpr int kTileRows = 12, kTileColumns = 32;  // 24 of 32 registers

// The first `rows` of a tile. Lines of a lie in blocks, or its pairs of one k together.
template <int rows, bool lines>
[[gnu::target("avx512f,avx512bf16"), gnu::noinline]] void sum_bf16(const PackedSum& p) {
  __m512 sum[rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) sum[r][v] = p.first ? _mm512_setzero_ps() : _mm512_loadu_ps(p.sums + r * p.sums_step + v * 16);
  const std::byte *a = p.a, *b = p.b, *next = p.ahead.panel;
  for (int64_t pair = 0; pair < p.pairs; ++pair, b += 4 * kTileColumns, next += p.ahead.pair) {
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
    if (pair % kWords == 0 && pair / kWords < p.ahead.rows) p.ahead.fetch_row(pair / kWords);
    __m512i row[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) row[v] = _mm512_loadu_si512(b + 64 * v);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      int both;
      __builtin_memcpy(&both, a + 4 * r * (lines ? kWords : 1), sizeof both);
      __m512i factor = _mm512_set1_epi32(both);
      asm("" : "+v"(factor));  // clang 16 ends itself where it sees 32 bf16 that are one pair
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)factor, (__m512bh)row[v]);
    }
    a += lines ? 4 : 4 * kTileRows;
    if (lines && pair % kWords == kWords - 1) a += 4 * kWords * (kTileRows - 1);
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(p.sums + r * p.sums_step + v * 16, sum[r][v]);
}

template <bool lines>
void multiply_bf16(const PackedSum& p) {
  if (p.rows <= 4) return sum_bf16<4, lines>(p);
  p.rows <= 8 ? sum_bf16<8, lines>(p) : sum_bf16<12, lines>(p);
}

}  // namespace

const PackedTile& bf16_tile() {
  static constexpr PackedTile tile =
      tile_of<PairedBf16, PairedBf16, kTileRows, kTileColumns>(multiply_bf16<false>, multiply_bf16<true>);
  return tile;
}

}  // namespace trireme
