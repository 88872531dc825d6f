// AMX's tiles in memory, as Intel's manual defines their instructions. For processors that have none.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/amx.h"

namespace trireme {

class EmulatedAmx {
 public:
  explicit EmulatedAmx(const AmxShapes& shapes) : shapes_(shapes) {
    require(shapes.palette == 1 && shapes.start_row == 0, text("AMX: palette ", int{shapes.palette}));
    for (size_t i = 0; i < shapes.rows.size(); ++i)
      require(i < AmxShapes::kTiles ? shapes.rows[i] <= 16 && shapes.row_bytes[i] <= 64 : shapes.rows[i] == 0,
              text("AMX: tile ", i, " is too large"));
  }

  template <int tile>
  void load(const void* rows, int64_t step) {
    clear<tile>();
    for (int row = 0; row < shapes_.rows[tile]; ++row)
      std::memcpy(&tiles_[tile][row], static_cast<const std::byte*>(rows) + row * step, shapes_.row_bytes[tile]);
  }
  template <int tile>
  void store(void* rows, int64_t step) {
    for (int row = 0; row < shapes_.rows[tile]; ++row)
      std::memcpy(static_cast<std::byte*>(rows) + row * step, &tiles_[tile][row], shapes_.row_bytes[tile]);
  }
  template <int tile>
  void clear() {
    tiles_[tile] = {};
  }

  // TDPBF16PS: chains of the even and of the odd elements, rounded to nearest; numbers below the normal ones are zeros.
  template <int sums, int a, int b>
  requires(sums != a && sums != b && a != b) void multiply() {
    const int pairs = shapes_.row_bytes[a] / 4, columns = shapes_.row_bytes[sums] / 4;
    require(shapes_.rows[a] == shapes_.rows[sums] && shapes_.rows[b] == pairs && shapes_.row_bytes[b] == shapes_.row_bytes[sums],
            text("AMX: tiles ", sums, ", ", a, " and ", b, " do not fit"));
    for (int row = 0; row < shapes_.rows[sums]; ++row) {
      std::array<float, 16> even{}, odd{};
      for (int pair = 0; pair < pairs; ++pair) {
        const uint32_t factors = tiles_[a][row][pair];
        for (int column = 0; column < columns; ++column) {
          const uint32_t of = tiles_[b][pair][column];
          even[column] = flushed(std::fma(low(factors), low(of), even[column]));
          odd[column] = flushed(std::fma(high(factors), high(of), odd[column]));
        }
      }
      for (int column = 0; column < columns; ++column) {
        const float sum = flushed(std::bit_cast<float>(tiles_[sums][row][column]));
        tiles_[sums][row][column] = std::bit_cast<uint32_t>(flushed(sum + flushed(even[column] + odd[column])));
      }
    }
  }

 private:
  using Tile = std::array<std::array<uint32_t, 16>, 16>;

  static float flushed(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
  }
  static float low(uint32_t pair) { return flushed(std::bit_cast<float>(pair << 16)); }
  static float high(uint32_t pair) { return flushed(std::bit_cast<float>(pair & 0xffff0000u)); }

  AmxShapes shapes_;
  std::array<Tile, AmxShapes::kTiles> tiles_{};
};

}  // namespace trireme
