// Digests in writing.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// 16 lower-case digits.
inline std::string hex(uint64_t value) {
  std::string digits(16, '0');
  for (size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return digits;
}

}  // namespace trireme
