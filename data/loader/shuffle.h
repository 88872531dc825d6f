// The order in which samples are read: a keyed permutation of [0, count), another for each epoch, computed and not stored.
//
// permuted() is a pure function, so any rank, at any step, of any run with the same seed agrees on it, and the loader's whole state
// is one integer. A Feistel network on the bits of the next power of two, its rounds keyed by philox; results outside [0, count)
// are fed back until they fall inside ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
// Fewer than two walks on average.
#pragma once

#include <bit>
#include <cstdint>

#include "base/error.h"
#include "base/philox.h"

namespace trireme {

namespace orders {

// The network on the bits of [0, count), or, backwards, its inverse.
struct Network {
  uint64_t key, counter;  // of the epoch
  int low_bits;
  uint64_t low_mask, high_mask;

  Network(uint64_t seed, int64_t epoch, int64_t count)
      : key(stream_key(seed, "order")), counter(static_cast<uint64_t>(epoch) << 8) {
    const int bits = std::bit_width(static_cast<uint64_t>(count - 1));
    low_bits = (bits + 1) / 2;
    low_mask = (uint64_t{1} << low_bits) - 1;
    high_mask = (uint64_t{1} << (bits - low_bits)) - 1;
  }
  uint64_t forwards(uint64_t value) const {
    uint64_t low = value & low_mask, high = value >> low_bits;
    for (uint64_t round = 0; round < 8; round += 2) {
      low ^= philox64(key, high, counter | round) & low_mask;
      high ^= philox64(key, low, (counter | round) + 1) & high_mask;
    }
    return high << low_bits | low;
  }
  uint64_t backwards(uint64_t value) const {
    uint64_t low = value & low_mask, high = value >> low_bits;
    for (uint64_t round = 8; round > 0; round -= 2) {
      high ^= philox64(key, low, (counter | (round - 2)) + 1) & high_mask;
      low ^= philox64(key, high, counter | (round - 2)) & low_mask;
    }
    return high << low_bits | low;
  }
};

}  // namespace orders

// 0 <= index < count, 0 <= epoch < 2^56.
inline int64_t permuted(uint64_t seed, int64_t epoch, int64_t index, int64_t count) {
  require(0 <= index && index < count, text("sample ", index, " of ", count));
  const orders::Network network(seed, epoch, count);
  auto value = static_cast<uint64_t>(index);
  do value = network.forwards(value);
  while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

// The index whose permuted() is `value`.
inline int64_t index_of(uint64_t seed, int64_t epoch, int64_t value, int64_t count) {
  require(0 <= value && value < count, text("sample ", value, " of ", count));
  const orders::Network network(seed, epoch, count);
  auto index = static_cast<uint64_t>(value);
  do index = network.backwards(index);
  while (index >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(index);
}

}  // namespace trireme
