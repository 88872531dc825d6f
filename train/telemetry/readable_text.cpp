#include "train/telemetry/readable_text.h"

#include "base/utf8.h"

namespace trireme {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Whether more bytes may complete the character that `bytes` begins with, or decide how to write it.
bool may_continue(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first == '\r') return bytes.size() == 1;  // a line end on some systems
  if (bytes.size() >= utf8_length(first)) return false;
  for (const char byte : bytes.substr(1))
    if ((static_cast<uint8_t>(byte) & 0xc0) != 0x80) return false;
  return true;
}

// One well-formed character, followed by the bytes `after`.
std::string shown(std::string_view character, std::string_view after) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character == "\r" && after.starts_with('\n')) return "\r";
  if (character == "\n" || character == "\t") return std::string(character);
  if (first < 0x20 || first == 0x7f) return std::string("^") + static_cast<char>(first ^ 0x40);
  if (character >= "\u202a" && character <= "\u202e") return std::string(kReplacement);  // override the order of what follows
  if (character >= "\u2066" && character <= "\u2069") return std::string(kReplacement);
  if (first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0) return std::string(kReplacement);  // C1 controls
  return std::string(character);
}

}  // namespace

std::string ReadableText::next(std::string_view bytes) {
  held_ += bytes;
  return take(false);
}

std::string ReadableText::finish() { return take(true); }

std::string ReadableText::take(bool last) {
  std::string out;
  std::string_view left = held_;
  while (!left.empty()) {
    if (!last && may_continue(left)) break;
    const size_t length = utf8_character(left);
    if (length == 0)
      out += kReplacement;
    else if (controls_ == Controls::show)
      out += shown(left.substr(0, length), left.substr(length));
    else
      out += left.substr(0, length);
    left.remove_prefix(length == 0 ? 1 : length);
  }
  held_ = std::string(left);
  return out;
}

}  // namespace trireme
