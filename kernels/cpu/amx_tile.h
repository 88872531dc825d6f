// The tile of AMX. Four tiles of the processor hold 32 x 32 sums; two of a and two of b are multiplied at a time.
#pragma once

#include "kernels/amx.h"
#include "kernels/cpu/packing.h"

namespace trireme {

// The first 16 or 32 rows, on tiles of a processor, or on those that a test emulates.
template <class Tiles, bool both>
void sum_amx(const PackedSum& p) {
  static constexpr AmxShapes kShapes = AmxShapes::whole();
  constexpr int64_t kPairs = 16, kLine = 64, kRow = 2 * kLine;  // of a tile; bytes of its row; of a row of b
  Tiles tiles(kShapes);
  std::byte* const sums = reinterpret_cast<std::byte*>(p.sums);
  const int64_t step = p.sums_step * static_cast<int64_t>(sizeof(float));
  if (p.first) {
    tiles.template clear<0>(), tiles.template clear<1>();
    if constexpr (both) tiles.template clear<2>(), tiles.template clear<3>();
  } else {
    tiles.template load<0>(sums, step), tiles.template load<1>(sums + kLine, step);
    if constexpr (both) tiles.template load<2>(sums + 16 * step, step), tiles.template load<3>(sums + 16 * step + kLine, step);
  }
  const std::byte *a = p.a, *b = p.b, *next = p.ahead.panel;
  for (int64_t block = 0; block * kPairs < p.pairs; ++block, a += 32 * kLine, b += kPairs * kRow) {
    tiles.template load<6>(b, kRow), tiles.template load<4>(a, kLine);
    tiles.template multiply<0, 4, 6>();
    tiles.template load<7>(b + kLine, kRow);
    tiles.template multiply<1, 4, 7>();
    if constexpr (both) {
      tiles.template load<5>(a + 16 * kLine, kLine);
      tiles.template multiply<2, 5, 6>();
      tiles.template multiply<3, 5, 7>();
    }
    for (int64_t pair = 0; pair < kPairs; ++pair, next += p.ahead.pair) __builtin_prefetch(next, 0, 2);
    for (int64_t row = 2 * block; row < std::min(2 * block + 2, p.ahead.rows); ++row) p.ahead.fetch_row(row);
  }
  tiles.template store<0>(sums, step), tiles.template store<1>(sums + kLine, step);
  if constexpr (both) tiles.template store<2>(sums + 16 * step, step), tiles.template store<3>(sums + 16 * step + kLine, step);
}

template <class Tiles>
void multiply_amx(const PackedSum& p) {
  p.rows <= 16 ? sum_amx<Tiles, false>(p) : sum_amx<Tiles, true>(p);
}

// Rows of a lie in blocks in both layouts, since the tiles hold whole rows.
template <class Tiles>
constexpr PackedTile amx_tile_on() {
  constexpr int kSide = 32, kWordsOfTile = 16;
  return {.rows = kSide,
          .columns = kSide,
          .words = kWordsOfTile,
          .k = 512,  // a panel of b stays in L1, while those of a come from L2
          .pair_of_a = PairedBf16::kPairBytes,
          .pair_of_b = PairedBf16::kPairBytes,
          .pack_a = pack_lines_across<kSide, kWordsOfTile>,
          .pack_lines_of_a = pack_lines<PairedBf16, kSide, kWordsOfTile>,
          .pack_b = pack<PairedBf16, kSide, 2 * kWordsOfTile>,
          .multiply = multiply_amx<Tiles>,
          .multiply_lines = multiply_amx<Tiles>};
}

}  // namespace trireme
