#include "kernels/cpu/pair_product.h"

#include <immintrin.h>

namespace trireme {

namespace {

constexpr int kBlockRows = 8, kLanesOfSums = 16;  // 16 of 32 registers, where there are two vectors

template <Walk walk, Start start, int vectors>
[[gnu::target("avx512f,avx512bw,avx512bf16"), gnu::noinline]] void multiply_columns(const PairProduct& p, int64_t j) {
  float* const c = p.c + j;
  const Word* b = p.b + j;
  __m512 sum[kBlockRows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < kBlockRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if constexpr (start == Start::zero)
        sum[r][v] = _mm512_setzero_ps();
      else
        sum[r][v] = _mm512_loadu_ps(c + r * p.ldc + v * kLanesOfSums);
      if constexpr (start == Start::scaled) sum[r][v] = _mm512_mul_ps(sum[r][v], _mm512_set1_ps(p.factor[r]));
    }
  for (int64_t k = 0; k < p.pairs; ++k, b += p.ldb) {
    __m512i row[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) row[v] = _mm512_loadu_si512(b + v * kLanesOfSums);
#pragma GCC unroll 8
    for (int r = 0; r < kBlockRows; ++r) {
      __m512i pair = _mm512_set1_epi32(static_cast<int>(walk == Walk::rows ? p.a[r * p.lda + k] : p.a[k * p.lda + r]));
      asm("" : "+v"(pair));  // clang 16 ends itself where it sees 32 bf16 that are one pair
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)pair, (__m512bh)row[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kBlockRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if constexpr (start == Start::zero) sum[r][v] = _mm512_mul_ps(sum[r][v], _mm512_set1_ps(p.scale));
      _mm512_storeu_ps(c + r * p.ldc + v * kLanesOfSums, sum[r][v]);
    }
}

}  // namespace

template <Walk walk, Start start>
void multiply_pairs(const PairProduct& p) {
  int64_t j = 0;
  for (; p.n - j >= 2 * kLanesOfSums; j += 2 * kLanesOfSums) multiply_columns<walk, start, 2>(p, j);
  if (j < p.n) multiply_columns<walk, start, 1>(p, j);
}
template void multiply_pairs<Walk::rows, Start::zero>(const PairProduct&);
template void multiply_pairs<Walk::rows, Start::sum>(const PairProduct&);
template void multiply_pairs<Walk::columns, Start::sum>(const PairProduct&);
template void multiply_pairs<Walk::columns, Start::scaled>(const PairProduct&);

[[gnu::target("avx512f,avx512bw,avx512bf16")]] void round_to_pairs(const float* rows, int64_t keys, int64_t of_first, Word* to) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  for (int64_t j = 0; j < keys; j += 2, rows += 4 * kLanesOfSums, to += 2 * kLanesOfSums)
    for (int64_t c = j < of_first ? 0 : kLanesOfSums; c < 2 * kLanesOfSums; c += kLanesOfSums) {
      const __m512 next = j + 1 < keys ? _mm512_loadu_ps(rows + 2 * kLanesOfSums + c) : _mm512_setzero_ps();
      const auto both = (__m512i)_mm512_cvtne2ps_pbh(next, _mm512_loadu_ps(rows + c));
      _mm512_storeu_si512(to + c, _mm512_permutexvar_epi16(order, both));
    }
}

[[gnu::target("avx512f,avx512bw,avx512bf16")]] void round_to_rows(const float* rows, int64_t keys, Word* to) {
  for (int64_t j = 0; j < keys; ++j, rows += 2 * kLanesOfSums, to += kLanesOfSums)
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(rows + kLanesOfSums), _mm512_loadu_ps(rows)));
}

}  // namespace trireme
