// ByteAlphabet: GPT-2's printable characters for bytes, in which a tokenizer.json writes its tokens. A visible Latin-1 byte is
// written as itself, the 68 others as U+0100 and up, in order.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>

namespace trireme {

class ByteAlphabet {
 public:
  ByteAlphabet();
  std::string write(std::string_view bytes) const;
  // False where `written` has a character that stands for no byte.
  bool read(std::string_view written, std::string& bytes) const;

 private:
  std::array<std::string, 256> written_;
  std::unordered_map<std::string, char> bytes_;
};

}  // namespace trireme
