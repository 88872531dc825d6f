// A cache of words and their tokens, for the inner loop of encoding, of one thread. It uses open addressing: a slot of 32 bytes has
// a word of up to 15 bytes and its first three tokens.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace trireme {

class WordCache {
 public:
  static constexpr size_t kLongest = 15;  // bytes of a word that is kept

  WordCache() : slots_(kSmallest) {}

  // The tokens of a word of 1 to kLongest bytes; empty: it is not known. Valid until the next keep().
  std::span<const int32_t> find(std::string_view word) const {
    const Slot& slot = slots_[place_of(key_of(word))];
    return {slot.count <= kInline ? slot.tokens : longer_.data() + slot.tokens[0], slot.count};
  }

  // Adds such a word, which is not known yet.
  void keep(std::string_view word, std::span<const int32_t> tokens) {
    if (2 * (used_ + 1) > slots_.size()) make_room();
    const Key key = key_of(word);
    Slot& slot = slots_[place_of(key)];
    slot = {key, static_cast<uint32_t>(tokens.size()), {}};
    if (tokens.size() <= kInline) {
      std::memcpy(slot.tokens, tokens.data(), tokens.size_bytes());
    } else {
      slot.tokens[0] = static_cast<int32_t>(longer_.size());
      longer_.insert(longer_.end(), tokens.begin(), tokens.end());
    }
    ++used_;
  }

 private:
  struct Key {
    uint64_t low, high;  // the bytes, zeros, and in the last byte their number: 0 in a slot that is free
    bool operator==(const Key&) const = default;
  };
  static constexpr size_t kInline = 3;
  struct Slot {
    Key key{0, 0};
    uint32_t count = 0;
    int32_t tokens[kInline] = {};  // more: where they begin in longer_
  };
  static constexpr size_t kSmallest = 4096, kLargest = 1 << 18;  // slots, powers of two: 8 MB at most

  template <class Word>
  static uint64_t load(const char* from) {
    Word word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  static Key key_of(std::string_view word) {
    const char* const p = word.data();
    const size_t n = word.size();
    const uint64_t number = static_cast<uint64_t>(n) << 56;
    if (n > 8) return {load<uint64_t>(p), load<uint64_t>(p + n - 8) >> (8 * (16 - n)) | number};
    if (n == 8) return {load<uint64_t>(p), number};
    if (n >= 4) return {load<uint32_t>(p) | load<uint32_t>(p + n - 4) << (8 * (n - 4)), number};
    return {load<uint8_t>(p) | load<uint8_t>(p + n / 2) << (8 * (n / 2)) | load<uint8_t>(p + n - 1) << (8 * (n - 1)), number};
  }
  size_t place_of(const Key& key) const {
    const uint64_t mixed = (key.low ^ (key.high * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
    size_t i = (mixed ^ mixed >> 32) & (slots_.size() - 1);
    while (slots_[i].key.high != 0 && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  // Twice as much, or, from what that would be too much on, all anew.
  void make_room() {
    std::vector<Slot> old(slots_.size() < kLargest ? 2 * slots_.size() : slots_.size());
    old.swap(slots_);
    if (old.size() == slots_.size()) {
      used_ = 0;
      longer_.clear();
      return;
    }
    for (const Slot& slot : old)
      if (slot.key.high != 0) slots_[place_of(slot.key)] = slot;
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
  std::vector<int32_t> longer_;
};

}  // namespace trireme
