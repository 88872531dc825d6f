// Attention's operands as pairs of bf16: keys and queries as pairs of adjacent elements, or as pairs of adjacent rows.
#pragma once

#include <cstring>

#include "kernels/cpu/attention_panel.h"
#include "kernels/cpu/pair_product.h"

namespace trireme {

// Words of a packed row of pairs of elements, in whole vectors.
inline int64_t words_of(const PanelSizes& sizes) { return round_up(sizes.head_size, 2 * kLanes) / 2; }
inline Word* words_at(float* memory) { return reinterpret_cast<Word*>(memory); }

// Copies a row of D elements, padded with zeros.
inline void copy_row(const Bf16* from, Word* to, const PanelSizes& sizes) {
  constexpr int64_t kVector = 2 * kLanes;  // elements
  auto* const elements = reinterpret_cast<Bf16*>(to);
  int64_t d = 0;
  for (; d + kVector <= sizes.head_size; d += kVector) std::memcpy(elements + d, from + d, kVector * sizeof(Bf16));
  if (d == sizes.head_size) return;
  std::fill_n(to + d / 2, kLanes, 0u);
  std::copy(from + d, from + sizes.head_size, elements + d);
}

// Pairs of elements of two rows; the second may be nullptr for a row of zeros. Padded with zeros to `padded` pairs.
inline void pair_rows(const Bf16* first, const Bf16* second, Word* to, const PanelSizes& sizes) {
  const auto* const low = reinterpret_cast<const uint16_t*>(first);
  const auto* const high = reinterpret_cast<const uint16_t*>(second == nullptr ? first : second);
  const uint32_t upper = second == nullptr ? 0 : 0xffff0000u;
#pragma omp simd
  for (int64_t d = 0; d < sizes.head_size; ++d)
    to[d] = static_cast<uint32_t>(low[d]) | ((static_cast<uint32_t>(high[d]) << 16) & upper);
  for (int64_t d = sizes.head_size; d < sizes.padded; ++d) to[d] = 0;
}

// Copies keys (or values) [begin, end) of a head, then kRows rows of zeros.
inline void copy_keys(const Bf16* from, Word* to, const KeyHead& head, int64_t begin, int64_t end) {
  const PanelSizes& sizes = head.sizes;
  const Bf16* at = from + head.key_at(begin);
  for (int64_t j = begin; j < end; ++j, at += sizes.key_row, to += words_of(sizes)) {
    prefetch_row(at + kAhead * sizes.key_row, sizes.head_size);
    copy_row(at, to, sizes);
  }
  std::fill_n(to, kRows * words_of(sizes), 0u);
}

// Packs keys (or values) [begin, end) of a head as pairs of rows; `begin` is even. After an odd end comes the next key, if there
// is one: a pair does not depend on the chunk.
inline void pair_keys(const Bf16* from, Word* to, const KeyHead& head, int64_t begin, int64_t end) {
  const PanelSizes& sizes = head.sizes;
  const Bf16* at = from + head.key_at(begin);
  for (int64_t j = begin; j < end; j += 2, at += 2 * sizes.key_row, to += sizes.padded) {
    prefetch_row(at + kAhead * sizes.key_row, sizes.head_size);
    prefetch_row(at + (kAhead + 1) * sizes.key_row, sizes.head_size);
    pair_rows(at, j + 1 < sizes.keys ? at + sizes.key_row : nullptr, to, sizes);
  }
}

// Floats of a head's keys: copied rows, and pairs of rows.
inline int64_t copied_keys(const PanelSizes& sizes) { return (sizes.keys + kRows) * words_of(sizes); }
inline int64_t paired_keys(const PanelSizes& sizes) { return (sizes.keys + 1) / 2 * sizes.padded; }

// Packs a panel's rows of q (or dout) as columns of pairs of elements, [words, kColumns]; zeros for columns without a pair.
// `rows` is memory for a copy.
inline void pack_columns(const Bf16* from, int64_t row_size, Word* rows, Word* columns, const KeyHead& head, const Panel& panel) {
  const PanelSizes& sizes = head.sizes;
  const int64_t words = words_of(sizes);
  for (int64_t c = 0; c < panel.count; ++c) copy_row(from + head.pair_at(panel.pairs[c], row_size), rows + c * words, sizes);
  std::fill(rows + panel.count * words, rows + kColumns * words, 0u);
  transpose(reinterpret_cast<const float*>(rows), reinterpret_cast<float*>(columns), words);  // only moves bits
}

// Packs them as pairs of rows, [kColumns / 2, padded].
inline void pair_columns(const Bf16* from, int64_t row_size, Word* to, const KeyHead& head, const Panel& panel) {
  const PanelSizes& sizes = head.sizes;
  const auto row = [&](int64_t c) { return c < panel.count ? from + head.pair_at(panel.pairs[c], row_size) : nullptr; };
  for (int64_t c = 0; c < panel.count; c += 2, to += sizes.padded) pair_rows(row(c), row(c + 1), to, sizes);
}

// c = start + a b, block by block; part_of(i) is what is needed of rows i to i + kRows. Its elements are those of bf16.
template <Walk walk, Start start>
inline void multiply_blocks(const PairProduct& p, int64_t m, const auto& part_of) {
  for (int64_t i = 0; i < m; i += kRows) {
    const BlockPart part = part_of(i);
    const int64_t begin = part.begin / 2;
    PairProduct some = p;
    some.c += i * p.ldc + part.column;
    some.a += walk == Walk::rows ? i * p.lda + begin : begin * p.lda + i;
    some.b += begin * p.ldb + part.column;
    some.n -= part.column;
    some.pairs = (part.end + 1) / 2 - begin;
    if (start == Start::scaled) some.factor += i;
    multiply_pairs<walk, start>(some);
  }
}

}  // namespace trireme
