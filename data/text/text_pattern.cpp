#include "data/text/text_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"

namespace trireme {

struct TextPattern::Code {
  const std::string pattern;
  pcre2_code* code;
  pcre2_match_data* data = nullptr;

  explicit Code(const std::string& words) : pattern(words) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(words.data()), words.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
                         &error, &offset, nullptr);
    if (code == nullptr) {
      std::array<PCRE2_UCHAR, 256> message{};
      pcre2_get_error_message(error, message.data(), message.size());
      throw ConfigError(
          text("'", words, "' is not a regular expression: ", reinterpret_cast<const char*>(message.data()), ", at byte ", offset));
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching is interpreted
    data = pcre2_match_data_create_from_pattern(code, nullptr);
    require(data != nullptr, text("PCRE2 is out of memory"));
  }
  ~Code() {
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

TextPattern::TextPattern(const std::string& pattern) : code_(std::make_unique<Code>(pattern)) {}
TextPattern::~TextPattern() = default;

bool TextPattern::found_in(std::string_view words) const {
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(words.data()), words.size(), 0, 0, code_->data, nullptr);
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  throw ConfigError(text("'", code_->pattern, "' cannot be looked for in a text of ", words.size(), " bytes: PCRE2's error ", found,
                         "; a pattern with fewer ways to match may help"));
}

}  // namespace trireme
