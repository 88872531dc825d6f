// Small products of bf16 for attention, by AVX512-BF16: each instruction multiplies 16 pairs of elements and adds both products
// to 16 sums in f32. A block of kRows x 32 sums stays in registers.
//
// A pair is two elements of bf16 in one word: of adjacent elements of a row, or of two adjacent rows.
#pragma once

#include "kernels/cpu/tile_product.h"

namespace trireme {

using Word [[gnu::may_alias]] = uint32_t;  // a pair

// Attention by pairs needs panels as wide as its registers.
inline constexpr bool kHasPairs = kLanes == 16;

// kRows rows of c, and all their columns. Distances are in elements or pairs.
struct PairProduct {
  float* c;  // [kRows, n]
  int64_t ldc;
  const Word* a;  // [kRows, pairs] (Walk::rows) or [pairs, kRows] (Walk::columns)
  int64_t lda;
  const Word* b;  // [pairs, n]
  int64_t ldb;
  int64_t n, pairs = 0;           // n a multiple of 16
  const float* factor = nullptr;  // Start::scaled: of each row
  float scale = 1;                // Start::zero: of all products
};

// c = scale * (a b), c + a b, or factor * c + a b. Defined for rows from zero, and for both walks from sums; for columns scaled.
template <Walk walk, Start start>
void multiply_pairs(const PairProduct& p);

// Rounds `keys` rows of 32 columns to words [keys / 2, 32] of two adjacent rows; after an odd number comes a row of zeros. Rows
// from `of_first` on, an even number or `keys`, have no first 16 columns.
void round_to_pairs(const float* rows, int64_t keys, int64_t of_first, Word* to);
// Rounds the same rows to rows of 16 words.
void round_to_rows(const float* rows, int64_t keys, Word* to);

}  // namespace trireme
