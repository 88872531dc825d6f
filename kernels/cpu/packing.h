// Packs lines for packed products: f32 as it is, or bf16 widened to f32 or in pairs along k. Panels of lines that are adjacent for
// one k are packed several at a time, row by row, as memory lies.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

// Formats of a panel. A word is 4 bytes along a line: one element of f32, two of bf16.
//   put_words   word `word` of `lanes` lines from `line` on
//   put_across  the word whose first elements are at `row`, of all lines; those of the next k are `step` further
//   put_one     an element
//   put_block   what fills `words` numbers of a packed line

// [k][width] f32.
struct PlainF32 {
  using Element = float;
  static constexpr int64_t kPairBytes = 8;
  template <int width, int lanes>
  static void put_words(float* panel, int64_t word, int64_t line, Vec words) {
    std::memcpy(panel + word * width + line, &words, lanes * sizeof(float));
  }
  template <int width>
  static void put_across(float* panel, int64_t word, const float* row, int64_t) {
    std::memcpy(panel + word * width, row, width * sizeof(float));
  }
  template <int width>
  static void put_one(float* panel, int64_t k, int64_t line, float element) {
    panel[k * width + line] = element;
  }
  template <int words>
  static void put_block(float* to, const float* from) {
    std::memcpy(to, from, words * sizeof(float));
  }
};

// [k][width] f32, from bf16.
struct WidenedBf16 {
  using Element = Bf16;
  static constexpr int64_t kPairBytes = 8;
  template <int width, int lanes>
  static void put_words(float* panel, int64_t word, int64_t line, Vec words) {
    using Words [[gnu::vector_size(sizeof(Vec))]] = uint32_t;
    const auto both = std::bit_cast<Words>(words);
    PlainF32::put_words<width, lanes>(panel, 2 * word, line, std::bit_cast<Vec>(both << 16));
    PlainF32::put_words<width, lanes>(panel, 2 * word + 1, line, std::bit_cast<Vec>(both & 0xffff0000u));
  }
  template <int width>
  static void put_across(float* panel, int64_t word, const Bf16* row, int64_t step) {
    float* const to = panel + 2 * word * width;
#pragma omp simd
    for (int line = 0; line < width; ++line) to[line] = to_float(row[line]);
#pragma omp simd
    for (int line = 0; line < width; ++line) to[width + line] = to_float(row[step + line]);
  }
  template <int width>
  static void put_one(float* panel, int64_t k, int64_t line, Bf16 element) {
    panel[k * width + line] = to_float(element);
  }
  template <int words>
  static void put_block(float* to, const Bf16* from) {
#pragma omp simd
    for (int i = 0; i < words; ++i) to[i] = to_float(from[i]);
  }
};

// [k / 2][width] pairs of bf16, the first of each in the low half.
struct PairedBf16 {
  using Element = Bf16;
  static constexpr int64_t kPairBytes = 4;
  template <int width, int lanes>
  static void put_words(float* panel, int64_t word, int64_t line, Vec words) {
    PlainF32::put_words<width, lanes>(panel, word, line, words);
  }
  template <int width>
  static void put_across(float* panel, int64_t word, const Bf16* row, int64_t step) {
    auto* const to = reinterpret_cast<uint32_t*>(panel) + word * width;
#pragma omp simd
    for (int line = 0; line < width; ++line)
      to[line] = static_cast<uint32_t>(row[line].bits) | static_cast<uint32_t>(row[step + line].bits) << 16;
  }
  template <int width>
  static void put_one(float* panel, int64_t k, int64_t line, Bf16 element) {
    reinterpret_cast<Bf16*>(panel)[(k / 2 * width + line) * 2 + k % 2] = element;
  }
  template <int words>
  static void put_block(float* to, const Bf16* from) {
    std::memcpy(to, from, words * sizeof(float));
  }
};

// Lines of a panel from `line` on, in squares of as many words as a vector has, over `words`.
template <class Format, int width, int line = 0>
void pack_squares(const typename Format::Element* from, int64_t k, int64_t words, float* panel) {
  constexpr int lanes = std::min<int>(kLanes, width - line);
  for (int64_t word = 0; word < words; word += kLanes) {
    Vec rows[kLanes];
#pragma GCC unroll 16
    for (int r = 0; r < static_cast<int>(kLanes); ++r) {
      rows[r] = Vec{};
      if (r >= lanes) continue;
      const auto* const at = from + (line + r) * k + word * 4 / static_cast<int>(sizeof *from);
      std::memcpy(&rows[r], at, sizeof rows[r]);
      __builtin_prefetch(at + lanes * k, 0, 2);
    }
    transpose_block<1>(rows);
#pragma GCC unroll 16
    for (int r = 0; r < static_cast<int>(kLanes); ++r) Format::template put_words<width, lanes>(panel, word + r, line, rows[r]);
  }
  if constexpr (line + lanes < width) pack_squares<Format, width, line + lanes>(from, k, words, panel);
}

inline constexpr int64_t kRowsAhead = 16;  // of memory, that are fetched while panels are packed along them
inline constexpr int64_t kWordsAhead = 8;  // of a panel

// Packs panels of `width` lines one after the other. Returns how many elements of each line it has packed: the others are few.
template <class Format, int width>
int64_t pack_whole(const Packing& p, int64_t panels) {
  constexpr int64_t kOfWord = 4 / sizeof(typename Format::Element), kWord = kOfWord * width * Format::kPairBytes / 8;
  const auto* const data = static_cast<const typename Format::Element*>(p.lines.data);
  const int64_t k = p.end - p.begin, step = p.lines.along ? p.lines.k : p.lines.count;
  const auto panel_at = [&](int64_t i) { return reinterpret_cast<float*>(p.to + i * p.bytes); };
  if (p.lines.along) {
    const int64_t words = k / kOfWord / kLanes * kLanes;
    for (int64_t i = 0; i < panels; ++i)
      pack_squares<Format, width>(data + (p.first + i * width) * step + p.begin, step, words, panel_at(i));
    return words * kOfWord;
  }
  for (int64_t word = 0; word < k / kOfWord; ++word)
    for (int64_t i = 0; i < panels; ++i) {
      const auto* const at = data + (p.begin + word * kOfWord) * step + p.first + i * width;
      for (int64_t of = 0; of < kOfWord; ++of) __builtin_prefetch(at + (kRowsAhead + of) * step, 0, 2);
      fetch_to_write(panel_at(i) + (word + kWordsAhead) * kWord, kWord * 4);
      Format::template put_across<width>(panel_at(i), word, at, step);
    }
  return k / kOfWord * kOfWord;
}

// Zeros make the number of elements a multiple.
template <class Format, int width, int multiple>
void pack(const Packing& p) {
  using Element = typename Format::Element;
  const auto* const data = static_cast<const Element*>(p.lines.data);
  const int64_t k = p.end - p.begin, whole = std::min(p.panels, (p.lines.count - p.first) / width);
  const int64_t done = pack_whole<Format, width>(p, whole);
  for (int64_t i = 0; i < p.panels; ++i) {
    auto* const panel = reinterpret_cast<float*>(p.to + i * p.bytes);
    const int64_t first = p.first + i * width;
    const auto element = [&](int64_t line, int64_t at) {
      if (first + line >= p.lines.count || at >= k) return Element{};
      return data[p.lines.along ? (first + line) * p.lines.k + p.begin + at : (p.begin + at) * p.lines.count + first + line];
    };
    for (int64_t at = i < whole ? done : 0; at < round_up(k, multiple); ++at)
      for (int64_t line = 0; line < width; ++line) Format::template put_one<width>(panel, at, line, element(line, at));
  }
}

// Elements [0, k) of a line in blocks; those from `count` on are zeros.
template <class Format, int width, int words>
void put_line(float* to, const typename Format::Element* from, int64_t count, int64_t k) {
  constexpr int64_t kElements = words * 8 / Format::kPairBytes;
  for (; k > 0; to += width * words, from += kElements, count -= kElements, k -= kElements) {
    typename Format::Element block[kElements]{};
    std::copy_n(from, std::clamp<int64_t>(count, 0, kElements), block);
    Format::template put_block<words>(to, block);
  }
}

// Packs lines in blocks [width][words], for a tile that reads a word of each at a time, or whole rows. So nothing is transposed.
template <class Format, int width, int words>
void pack_lines(const Packing& p) {
  using Element = typename Format::Element;
  constexpr int64_t kElements = words * 8 / Format::kPairBytes, kLine = 64 / sizeof(Element),
                    kChunk = kLine / kElements * width * words;
  const int64_t k = p.end - p.begin, whole = std::min(p.panels, (p.lines.count - p.first) / width), step = p.lines.k;
  for (int64_t i = 0; i < p.panels; ++i) {
    const Element* const from = static_cast<const Element*>(p.lines.data) + (p.first + i * width) * step + p.begin;
    auto* to = reinterpret_cast<float*>(p.to + i * p.bytes);
    int64_t at = 0;
    if (i < whole)
      for (; at + kLine <= k; at += kLine, to += kChunk) {
        fetch_to_write(to + 2 * kChunk, kChunk * 4);
#pragma GCC unroll 12
        for (int row = 0; row < width; ++row)
#pragma GCC unroll 4
          for (int64_t block = 0; block < kLine / kElements; ++block)
            Format::template put_block<words>(to + (block * width + row) * words, from + row * step + at + block * kElements);
      }
    for (int64_t row = 0; row < width; ++row)
      put_line<Format, width, words>(to + row * words, from + row * step + at,
                                     p.first + i * width + row < p.lines.count ? k - at : 0, k - at);
  }
}

// Packs lines of bf16, of which the elements of one k are adjacent, as pack_lines() does others.
template <int width, int words>
void pack_lines_across(const Packing& p) {
  constexpr int64_t kElements = 2 * words;
  const auto* const data = static_cast<const Bf16*>(p.lines.data);
  const int64_t k = p.end - p.begin, step = p.lines.count;
  for (int64_t at = 0; at < k; at += kElements)
    for (int64_t i = 0; i < p.panels; ++i) {
      const int64_t first = p.first + i * width, lines = std::min<int64_t>(width, p.lines.count - first);
      const Bf16* const from = data + (p.begin + at) * step + first;
      alignas(64) float numbers[words * width];
      if (lines == width && k - at >= kElements) {
        for (int word = 0; word < words; ++word) {
          for (int of = 0; of < 2; ++of) __builtin_prefetch(from + (kElements + 2 * word + of) * step, 0, 2);
          PairedBf16::put_across<width>(numbers, word, from + 2 * word * step, step);
        }
      } else {
        for (int64_t e = 0; e < kElements; ++e)
          for (int64_t line = 0; line < width; ++line)
            PairedBf16::put_one<width>(numbers, e, line, line < lines && at + e < k ? from[e * step + line] : Bf16{});
      }
      transpose<words>(numbers, reinterpret_cast<float*>(p.to + i * p.bytes) + at / 2 * width, width);
    }
}

inline constexpr int kWords = 8;  // of a line, in tiles of vectors

// The tile of vectors that multiplies panels of these formats.
template <class A, class B, int rows, int columns>
constexpr PackedTile tile_of(decltype(PackedTile::multiply) multiply, decltype(PackedTile::multiply) multiply_lines) {
  return {.rows = rows,
          .columns = columns,
          .words = kWords,
          .k = 1024,  // its panels stay in L2
          .pair_of_a = A::kPairBytes,
          .pair_of_b = B::kPairBytes,
          .pack_a = pack<A, rows, 2>,
          .pack_lines_of_a = pack_lines<A, rows, kWords>,
          .pack_b = pack<B, columns, 2>,
          .multiply = multiply,
          .multiply_lines = multiply_lines};
}

}  // namespace trireme
