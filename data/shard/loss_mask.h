// Loss masks: of each token of a shard one bit, 1 where the token is a target. Token i has bit i % 8 of byte i / 8, the lowest bit
// being bit 0: numpy.unpackbits(file["loss_mask"], count=tokens, bitorder="little").
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

inline int64_t loss_mask_bytes(int64_t tokens) { return tokens / 8 + (tokens % 8 > 0 ? 1 : 0); }

// `trained`: 0 or 1 of each token. Bits after the last are 0.
inline std::vector<uint8_t> loss_mask_of(std::span<const uint8_t> trained) {
  std::vector<uint8_t> mask(static_cast<size_t>(loss_mask_bytes(static_cast<int64_t>(trained.size()))), 0);
  for (size_t i = 0; i < trained.size(); ++i) mask[i / 8] = static_cast<uint8_t>(mask[i / 8] | trained[i] << i % 8);
  return mask;
}

inline uint8_t loss_mask_bit(std::span<const uint8_t> mask, size_t i) { return mask[i / 8] >> i % 8 & 1; }

// Counts the ones among bits [begin, end).
inline int64_t count_loss_mask(std::span<const uint8_t> mask, size_t begin, size_t end) {
  int64_t count = 0;
  for (size_t i = begin; i < end;) {
    if (i % 8 == 0 && i + 8 <= end) {
      count += std::popcount(mask[i / 8]);
      i += 8;
    } else {
      count += loss_mask_bit(mask, i++);
    }
  }
  return count;
}

}  // namespace trireme
