#include "data/tokenizer_words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "data/utf8.h"
#include "kernels/check.h"

namespace trireme {

namespace {

// White space is spelled out as Unicode's White_Space property: PCRE2's \s also counts U+180E.
constexpr const char* kSpace = R"(\x{9}-\x{d}\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string word_pattern() {
  const std::string space = std::string("[") + kSpace + "]", visible = std::string("[^") + kSpace + "]";
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" + std::string(kSpace) + R"(\p{L}\p{N}]+|)" + space + "+(?!" + visible +
         ")|" + space + "+";
}

}  // namespace

struct WordCutter::Match {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;

  Match() {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string pattern = word_pattern();
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_ANCHORED, &error, &offset,
                         nullptr);
    require(code != nullptr, text("PCRE2 refuses the word pattern: error ", error, " at ", offset));
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching is interpreted
    data = pcre2_match_data_create_from_pattern(code, nullptr);
    require(data != nullptr, text("PCRE2 is out of memory"));
  }
  ~Match() {
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;
};

WordCutter::WordCutter() : match_(std::make_unique<Match>()) {}
WordCutter::~WordCutter() = default;
WordCutter::WordCutter(WordCutter&&) noexcept = default;
WordCutter& WordCutter::operator=(WordCutter&&) noexcept = default;

void WordCutter::start(std::string_view text) {
  rest_ = text;
  valid_ = utf8_prefix(text);
}

bool WordCutter::next(std::string_view& word) {
  if (rest_.empty()) return false;
  size_t length = 1;
  if (valid_ > 0) {
    const int found =
        pcre2_match(match_->code, reinterpret_cast<PCRE2_SPTR>(rest_.data()), valid_, 0, PCRE2_NO_UTF_CHECK, match_->data, nullptr);
    require(found > 0, text("PCRE2 cannot cut a word: error ", found));
    length = pcre2_get_ovector_pointer(match_->data)[1];
    valid_ -= length;
  }
  word = rest_.substr(0, length);
  rest_.remove_prefix(length);
  if (valid_ == 0) valid_ = utf8_prefix(rest_);
  return true;
}

size_t cut_between_words(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  for (size_t i = limit; i > 0; --i)
    if (text[i] == '\n' && text[i - 1] > ' ' && text[i - 1] < 0x7f) return i;
  size_t i = limit;
  while (i > 1 && i + 3 > limit && (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80) --i;
  return i;
}

}  // namespace trireme
