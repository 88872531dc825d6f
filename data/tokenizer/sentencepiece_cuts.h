// SentencePieceCuts: places between two ASCII characters at which a text may be cut. The pieces of its parts are those of the
// whole: no piece and no rule of normalisation holds both, each is normalised alone, and they are not both unknown.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "data/tokenizer/sentencepiece_model.h"

namespace trireme {

class SentencePieceCuts {
 public:
  // DataError for rules of normalisation that lead out of their table.
  SentencePieceCuts(const SentencePieceModel& model, const std::string& name);

  // In front of text[i]; 0 < i < text.size().
  bool at(std::string_view text, size_t i) const {
    const char left = text[i - 1], right = text[i];
    if (((left | right) & 0x80) != 0 || !safe_[of(left)][of(right)]) return false;
    return !leads_[of(right)] || (i + 1 < text.size() && (text[i + 1] & 0x80) == 0);
  }
  bool is_space(char c) const { return (c & 0x80) == 0 && becomes_[of(c)] == ' '; }

 private:
  static size_t of(char c) { return static_cast<size_t>(c); }
  void read_rules(const std::string& rules, const std::string& name);

  static constexpr char kOther = '\0';
  std::array<char, 128> becomes_{};  // what a character is normalised to wherever it stands; kOther: not known
  std::array<bool, 128> leads_{};    // whether rules have keys of it and what is not ASCII
  std::array<std::array<bool, 128>, 128> safe_{};
};

}  // namespace trireme
