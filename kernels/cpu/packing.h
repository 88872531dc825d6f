// Packs lines of bf16 for packed products: pairs along k side by side, as bf16 or widened to f32.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

// A pair of one line: both elements, the first in the low half.
struct AsBf16 {
  static constexpr int64_t kBytes = 4;
  template <int width>
  static void put(std::byte* to, int64_t pair, int64_t line, uint32_t both) {
    reinterpret_cast<uint32_t*>(to)[pair * width + line] = both;
  }
};
// Two elements of one line in f32, `width` apart.
struct AsF32 {
  static constexpr int64_t kBytes = 8;
  template <int width>
  static void put(std::byte* to, int64_t pair, int64_t line, uint32_t both) {
    float* const at = reinterpret_cast<float*>(to) + 2 * pair * width + line;
    at[0] = std::bit_cast<float>(both << 16), at[width] = std::bit_cast<float>(both & 0xffff0000u);
  }
};

inline uint32_t paired(Bf16 low, Bf16 high) { return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16; }

// All lines of a panel, in squares of as many pairs as a vector has. Returns how many pairs of each.
template <int width>
int64_t pack_squares(const Packing& p) {
  const int64_t pairs = (p.end - p.begin) / 2 / kLanes * kLanes;
  auto* const to = reinterpret_cast<float*>(p.to);  // pairs of bits: they are only moved
  for (int64_t i = 0; i < pairs; i += kLanes)
    for (int64_t line = 0; line < width; line += kLanes) {
      Vec rows[kLanes];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r)
        std::memcpy(&rows[r], p.lines.data + (p.first + line + r) * p.lines.k + p.begin + 2 * i, sizeof rows[r]);
      transpose_block<1>(rows);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) store(to + (i + r) * width + line, rows[r]);
    }
  return pairs;
}

// `lines` of the panel's width exist.
template <class As, int width>
void pack_lines(const Packing& p, int64_t lines) {
  constexpr int64_t kStrip = 16;  // pairs: a cache line of each line
  constexpr bool squares = std::is_same_v<As, AsBf16> && width % kLanes == 0;
  const int64_t pairs = (p.end - p.begin) / 2;
  int64_t done = 0;
  if constexpr (squares) done = lines == width ? pack_squares<width>(p) : 0;
  for (int64_t strip = done; strip < pairs; strip += kStrip)
    for (int64_t line = 0; line < lines; ++line) {
      const Bf16* const from = p.lines.data + (p.first + line) * p.lines.k + p.begin;
      for (int64_t i = strip; i < std::min(pairs, strip + kStrip); ++i) {
        uint32_t both;
        std::memcpy(&both, from + 2 * i, sizeof both);
        As::template put<width>(p.to, i, line, both);
      }
    }
}

template <class As, int width>
void pack_across(const Packing& p, int64_t lines) {
  const int64_t pairs = (p.end - p.begin) / 2, step = p.lines.count;
  for (int64_t i = 0; i < pairs; ++i) {
    const Bf16 *const low = p.lines.data + (p.begin + 2 * i) * step + p.first, *const high = low + step;
    const int64_t count = lines == width ? width : lines;  // a constant, mostly
#pragma omp simd
    for (int64_t line = 0; line < count; ++line) As::template put<width>(p.to, i, line, paired(low[line], high[line]));
  }
}

template <class As, int width>
void pack(const Packing& p) {
  const int64_t lines = std::min<int64_t>(width, p.lines.count - p.first), k = p.end - p.begin;
  if (lines < width) std::memset(p.to, 0, static_cast<size_t>((k + 1) / 2 * width * As::kBytes));
  p.lines.along ? pack_lines<As, width>(p, lines) : pack_across<As, width>(p, lines);
  if (k % 2 == 0) return;
  const int64_t last = p.end - 1;
  for (int64_t line = 0; line < width; ++line) {
    const Bf16* const at =
        p.lines.data + (p.lines.along ? (p.first + line) * p.lines.k + last : last * p.lines.count + p.first + line);
    As::template put<width>(p.to, k / 2, line, line < lines ? paired(*at, Bf16{}) : 0);
  }
}

// The tile that multiplies b as pairs of bf16 and a as A says.
template <class A, int rows, int columns>
constexpr PackedTile tile_of(decltype(PackedTile::multiply) multiply) {
  return {.rows = rows,
          .columns = columns,
          .pair_of_a = A::kBytes,
          .pair_of_b = AsBf16::kBytes,
          .pack_a = pack<A, rows>,
          .pack_b = pack<AsBf16, columns>,
          .multiply = multiply};
}

}  // namespace trireme
