// 8-bit floating point numbers: Micikevicius et al., "FP8 formats for deep learning", 2022. E4M3
// has more precision and no infinity, E5M2 more range. Conversion from float rounds to nearest even
// and saturates; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme {

template <int kExponentBits, int kMantissaBits, int kBias, uint8_t kLargestBits>
struct Float8 {
  uint8_t bits = 0;

  constexpr Float8() = default;
  constexpr explicit Float8(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value), magnitude = u & 0x7fffffffu;
    const auto sign = static_cast<uint8_t>(u >> 24 & 0x80u);
    if (magnitude > 0x7f800000u) {
      bits = 0x7f;
    } else if (magnitude >= std::bit_cast<uint32_t>(largest())) {
      bits = sign | kLargestBits;
    } else if (magnitude < kSmallestNormal) {
      // Adding this makes the sum's last bit the smallest subnormal number.
      constexpr float kRounder = std::bit_cast<float>(static_cast<uint32_t>(127 + 23 + 1 - kBias - kMantissaBits) << 23);
      const float sum = std::bit_cast<float>(magnitude) + kRounder;
      bits = sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(kRounder));
    } else {
      const uint32_t rounded = magnitude + (1u << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1u);
      bits = sign | static_cast<uint8_t>((rounded - (static_cast<uint32_t>(127 - kBias) << 23)) >> kDropped);
    }
  }
  constexpr explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24, rest = bits & 0x7fu;
    if (rest > kLargestBits) {  // E4M3: NaN; E5M2: infinity and NaN
      const bool infinity = kBias == 15 && rest == static_cast<uint32_t>(kLargestBits) + 1;
      return std::bit_cast<float>(sign | (infinity ? 0x7f800000u : 0x7fc00000u));
    }
    if (rest >> kMantissaBits != 0)
      return std::bit_cast<float>(sign | ((rest << kDropped) + (static_cast<uint32_t>(127 - kBias) << 23)));
    constexpr float kLeast = std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits) << 23);
    const float value = static_cast<float>(rest) * kLeast;
    return sign != 0 ? -value : value;
  }
  static constexpr float largest() {
    return std::bit_cast<float>((uint32_t{kLargestBits} << kDropped) + (static_cast<uint32_t>(127 - kBias) << 23));
  }

 private:
  static_assert(1 + kExponentBits + kMantissaBits == 8);
  static constexpr int kDropped = 23 - kMantissaBits;
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
};

using E4m3 = Float8<4, 3, 7, 0x7e>;
using E5m2 = Float8<5, 2, 15, 0x7b>;

}  // namespace trireme
