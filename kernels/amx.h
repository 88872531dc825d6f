// AMX's tiles and their shapes, for a process that may use them (x86_features.h). Source: Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 1, chapter 18.
#pragma once

#include <array>
#include <cstdint>

namespace trireme {

// The operand of ldtilecfg: a size for each of eight tiles, at most 16 rows of 64 bytes.
struct alignas(64) AmxShapes {
  uint8_t palette = 1, start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{};
  std::array<uint8_t, 16> rows{};

  static constexpr int kTiles = 8;
  static constexpr AmxShapes whole() {
    AmxShapes all;
    for (int tile = 0; tile < kTiles; ++tile) all.row_bytes[tile] = 64, all.rows[tile] = 16;
    return all;
  }
};
static_assert(sizeof(AmxShapes) == 64);

// The calling thread's tiles, of these shapes while the scope lasts. Names of tiles are constants of the instructions.
class AmxTiles {
 public:
  explicit AmxTiles(const AmxShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  // `step` bytes between rows.
  template <int tile>
  void load(const void* rows, int64_t step) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(step), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* rows, int64_t step) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(step), "i"(tile) : "memory");
  }
  template <int tile>
  void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  // sums [rows of a, columns] += a [rows, pairs] b [pairs, columns]: pairs of bf16, sums of f32. Three different tiles.
  template <int sums, int a, int b>
  requires(sums != a && sums != b && a != b) void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
  }
};

}  // namespace trireme
