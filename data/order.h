// The order in which samples are read: a keyed permutation of [0, count), another for each epoch, computed and not stored.
//
// permuted() is a pure function, so any rank, at any step, of any run with the same seed agrees on it, and the loader's whole state
// is one integer. A Feistel network on the bits of the next power of two, its rounds keyed by philox; results outside [0, count)
// are fed back until they fall inside ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
// Fewer than two walks on average.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/check.h"
#include "kernels/philox.h"

namespace trireme {

// 0 <= index < count, 0 <= epoch < 2^56.
inline int64_t permuted(uint64_t seed, int64_t epoch, int64_t index, int64_t count) {
  require(0 <= index && index < count, text("sample ", index, " of ", count));
  const int bits = std::bit_width(static_cast<uint64_t>(count - 1));
  const int low_bits = (bits + 1) / 2;
  const uint64_t low_mask = (uint64_t{1} << low_bits) - 1, high_mask = (uint64_t{1} << (bits - low_bits)) - 1;
  const uint64_t key = stream_key(seed, "order");
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint64_t low = value & low_mask, high = value >> low_bits;
    for (uint64_t round = 0; round < 8; round += 2) {
      const uint64_t counter = static_cast<uint64_t>(epoch) << 8 | round;
      low ^= philox64(key, high, counter) & low_mask;
      high ^= philox64(key, low, counter + 1) & high_mask;
    }
    value = high << low_bits | low;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace trireme
