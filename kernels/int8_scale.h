// Scale of numbers that share one in 8 bits: their largest magnitude / 127. All back-ends compute it to the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme {

// Elements are multiplied by `inverse` and rounded; they are codes of 0 if one of them is not finite, and the scale is NaN.
struct Int8Scale {
  float scale, inverse;
  bool finite;
};

// `magnitude` is the bits of the largest |x|; those of a NaN are the largest.
constexpr Int8Scale int8_scale(uint32_t magnitude) {
  constexpr uint32_t kLeast = 0x0d800000u, kInfinity = 0x7f800000u;  // 2^-100: smaller numbers lose digits
  constexpr float kMost = 127;
  if (magnitude >= kInfinity) return {.scale = std::bit_cast<float>(0x7fc00000u), .inverse = 0, .finite = false};
  const float most = std::bit_cast<float>(magnitude < kLeast ? kLeast : magnitude);
  return {.scale = most / kMost, .inverse = kMost / most, .finite = true};
}

}  // namespace trireme
