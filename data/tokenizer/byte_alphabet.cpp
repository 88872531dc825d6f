#include "data/tokenizer/byte_alphabet.h"

#include "base/utf8.h"

namespace trireme {

ByteAlphabet::ByteAlphabet() {
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const int point = visible ? byte : next++;
    auto& out = written_[static_cast<size_t>(byte)];
    if (point < 0x80) {
      out = {static_cast<char>(point)};
    } else {
      out = {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
    }
    bytes_.emplace(out, static_cast<char>(byte));
  }
}

std::string ByteAlphabet::write(std::string_view bytes) const {
  std::string out;
  for (const char c : bytes) out += written_[static_cast<uint8_t>(c)];
  return out;
}

bool ByteAlphabet::read(std::string_view written, std::string& bytes) const {
  bytes.clear();
  while (!written.empty()) {
    const auto found = bytes_.find(std::string(written.substr(0, utf8_character(written))));
    if (found == bytes_.end()) return false;
    bytes += found->second;
    written.remove_prefix(found->first.size());
  }
  return true;
}

}  // namespace trireme
