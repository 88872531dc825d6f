#include "base/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "base/utf8.h"

namespace trireme {

namespace {

uint32_t point_of(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(character[i])); };
  if (character.size() == 1) return byte(0);
  if (character.size() == 2) return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
  if (character.size() == 3) return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

bool is_control(uint32_t point) {
  const bool bidirectional = point == 0x061c || point == 0x200e || point == 0x200f || (point >= 0x202a && point <= 0x202e) ||
                             (point >= 0x2066 && point <= 0x2069);
  return (point >= 0x7f && point < 0xa0) || bidirectional || point == 0x2028 || point == 0x2029 || point == 0xfeff;
}

std::string escaped(std::string_view text, std::string_view kept) {
  const auto plain = [&](char c) { return (c >= ' ' && c < 0x7f) || kept.find(c) != std::string_view::npos; };
  if (std::ranges::all_of(text, plain)) return std::string(text);
  std::string out;
  std::array<char, 8> escape;
  const auto append = [&](const char* format, uint32_t value) {
    out.append(escape.data(), static_cast<size_t>(std::snprintf(escape.data(), escape.size(), format, value)));
  };
  while (!text.empty()) {
    const size_t length = utf8_character(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    const uint32_t point = length == 0 ? static_cast<uint8_t>(text[0]) : point_of(character);
    if (length == 0 || (point < ' ' && !plain(text[0])))
      append("\\x%02x", point);
    else if (is_control(point))
      append("\\u%04x", point);
    else
      out += character;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, ""); }
std::string printable_lines(std::string_view text) { return escaped(text, "\n\t"); }

}  // namespace trireme
