// UTF-8 validation by Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace trireme {

// Length in bytes of a character that begins with this byte; 0 if none does.
inline size_t utf8_length(uint8_t first) {
  return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

// Length in bytes of the well-formed character at the beginning of `bytes`; 0 if there is none.
inline size_t utf8_character(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const auto continues = [&](size_t i) { return (at(i) & 0xc0) == 0x80; };
  const uint8_t first = at(0);
  const size_t length = utf8_length(first);
  if (length == 0 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!continues(i)) return 0;
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f)) return 0;
  if ((first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f)) return 0;
  return length;
}

// Length in bytes of the longest well-formed prefix.
inline size_t utf8_prefix(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    uint64_t eight = 0;
    if (bytes.size() - i >= 8 && (std::memcpy(&eight, bytes.data() + i, 8), (eight & 0x8080808080808080ull) == 0)) {
      i += 8;
      continue;
    }
    const size_t length = utf8_character(bytes.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

// The last start of a character within the first `limit` bytes of a longer text.
inline size_t start_of_character(std::string_view text, size_t limit) {
  size_t i = limit;
  while (i > 1 && i + 3 > limit && (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80) --i;
  return i;
}

}  // namespace trireme
