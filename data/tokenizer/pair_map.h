// A hash map from pairs of token ids to small values, for the inner loops of byte-pair encoding: open addressing, no deletion.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

using TokenPair = uint64_t;  // left << 32 | right

constexpr TokenPair pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
constexpr int32_t left_of(TokenPair pair) { return static_cast<int32_t>(pair >> 32); }
constexpr int32_t right_of(TokenPair pair) { return static_cast<int32_t>(pair & 0xffffffffu); }

// Ids are not negative, so an all-ones key marks a free slot.
class PairMap {
 public:
  PairMap() : slots_(kSmallest) {}

  // The value of `pair`, or -1.
  int32_t find(TokenPair pair) const {
    const Slot& slot = slots_[place_of(pair)];
    return slot.pair == pair ? slot.value : -1;
  }

  // The value of `pair`, after setting it to `value` where it had none.
  int32_t insert(TokenPair pair, int32_t value) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(pair)];
    if (slot.pair == pair) return slot.value;
    slot = {pair, value};
    ++used_;
    return value;
  }

 private:
  struct Slot {
    TokenPair pair = ~TokenPair{0};
    int32_t value = -1;
  };
  static constexpr size_t kSmallest = 1024;  // a power of two, as every later size

  size_t place_of(TokenPair pair) const {
    size_t i = static_cast<size_t>((pair * 0x9E3779B97F4A7C15ull) >> 20) & (slots_.size() - 1);
    while (slots_[i].pair != pair && slots_[i].pair != ~TokenPair{0}) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.pair != ~TokenPair{0}) slots_[place_of(slot.pair)] = slot;
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace trireme
