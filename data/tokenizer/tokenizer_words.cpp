#include "data/tokenizer/tokenizer_words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/word_scanner.h"

namespace trireme {

namespace patterns {
const std::string gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Without the possessive quantifiers and the end of text as tiktoken has them, which other libraries read differently: here they
// match the same.
const std::string cl100k = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                           R"(\s+(?!\s|\S)|\s*[\r\n]|\s+(?!\S)|\s)";
const std::string o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                           R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string qwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                          R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
}  // namespace patterns

const std::string& pattern_named(const std::string& name) {
  const std::array<std::pair<const char*, const std::string*>, 5> all{{{"gpt2", &patterns::gpt2},
                                                                       {"cl100k", &patterns::cl100k},
                                                                       {"o200k", &patterns::o200k},
                                                                       {"llama3", &patterns::llama3},
                                                                       {"qwen2", &patterns::qwen2}}};
  for (const auto& [known, pattern] : all)
    if (known == name) return *pattern;
  throw ConfigError("pattern '" + name + "': must be gpt2, cl100k, o200k, llama3 or qwen2");
}

namespace {

// White space is spelled out as Unicode's White_Space property: PCRE2's \s also counts U+180E.
constexpr const char* kSpace = R"(\x{9}-\x{d}\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

[[noreturn]] void refuse(const std::string& pattern, const std::string& what) {
  throw DataError("the pattern " + pattern + " has " + what + ", which libraries read differently");
}

// Characters that PCRE2 may be too old to count to a category, as ranges.
std::string additions_to(std::string_view category) {
  std::ostringstream ranges;
  const auto of = unicode_additions();
  for (auto it = of.begin(); it != of.end();) {
    const auto first = it;
    while (it != of.end() && it->category.starts_with(category) && (it == first || it->first == (it - 1)->last + 1)) ++it;
    if (it == first)
      ++it;
    else
      ranges << std::hex << "\\x{" << first->first << "}-\\x{" << (it - 1)->last << "}";
  }
  return ranges.str();
}

// \p or \P of a name: general categories are the same everywhere, of scripts PCRE2 would take the extended ones.
// If the text holds such additions, they are listed after it, which makes matching several times slower.
std::string property(char p, const std::string& name, bool in_class, bool additions) {
  constexpr std::string_view kCategories =
      " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cn Co Cs ";
  if (kCategories.find(" " + name + " ") == std::string_view::npos) return std::string{'\\', p} + "{sc:" + name + "}";
  const std::string added = additions ? additions_to(name) : "";
  if (added.empty() || (in_class && p == 'P')) return std::string{'\\', p} + "{" + name + "}";
  const std::string members = "\\p{" + name + "}" + added;
  return in_class ? members : (p == 'P' ? "[^" : "[") + members + "]";
}

// The pattern as PCRE2 is to read it.
std::string spelled_out(const std::string& pattern, bool additions) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\' && next != '\0') {
      ++i;
      if (next == 's') {
        out += in_class ? kSpace : "[" + std::string(kSpace) + "]";
      } else if (next == 'S' && !in_class) {
        out += "[^" + std::string(kSpace) + "]";
      } else if (std::string_view("SwWbBhHvVRXKGAzZQEC").find(next) != std::string_view::npos) {
        refuse(pattern, std::string{'\\', next});
      } else {
        const size_t close = pattern.find('}', i);
        if ((next == 'p' || next == 'P') && i + 1 < pattern.size() && pattern[i + 1] == '{' && close != std::string::npos) {
          out += property(next, pattern.substr(i + 2, close - i - 2), in_class, additions);
          i = close;
        } else {
          out += std::string{c, next};
        }
      }
      continue;
    }
    if (in_class && c == '[') refuse(pattern, "a class in a class");
    if (in_class && c == '&' && next == '&') refuse(pattern, "&& in a class");
    if (!in_class && (c == '^' || c == '$')) refuse(pattern, std::string{c});
    if (!in_class && c == '}' && next == '+') refuse(pattern, "}+");
    out += c;
    if (!in_class && c == '[' && next == '^') out += next, ++i;
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
  }
  return out;
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct WordPatterns::Code {
  const WordScanner scanner;  // or nullptr, and
  pcre2_code *code = nullptr, *code_with_additions = nullptr;

  Code(const std::string& pattern, Cutting cutting) : scanner(cutting == Cutting::fastest ? scanner_of(pattern) : nullptr) {
    if (scanner != nullptr) return;
    code = compiled(pattern, false);
    code_with_additions = compiled(pattern, true);
  }
  ~Code() {
    pcre2_code_free(code);
    pcre2_code_free(code_with_additions);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

 private:
  static pcre2_code* compiled(const std::string& pattern, bool additions) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string spelled = spelled_out(pattern, additions);
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code* code = pcre2_compile(bytes_of(spelled), spelled.size(), kOptions, &error, &offset, nullptr);
    if (code == nullptr) {
      std::array<PCRE2_UCHAR, 256> message{};
      pcre2_get_error_message(error, message.data(), message.size());
      throw DataError("the pattern " + pattern + " is not a regular expression: " + reinterpret_cast<const char*>(message.data()));
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching is interpreted
    return code;
  }
};

WordPatterns::WordPatterns(const std::vector<std::string>& patterns, Cutting cutting) {
  for (const std::string& pattern : patterns) codes_.push_back(std::make_unique<const Code>(pattern, cutting));
}
WordPatterns::~WordPatterns() = default;

// One pattern on one text: UTF-8, of which the words up to `at` have been given.
struct WordCutter::Stage {
  const WordPatterns::Code* code;
  const pcre2_code* matched = nullptr;  // of the two the one for this text
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  std::string_view text;
  size_t at = 0, found_begin = 0, found_end = 0;  // the next match, if it is not before `at`

  explicit Stage(const WordPatterns::Code& compiled) : code(&compiled) {
    if (code->scanner != nullptr) return;
    data = pcre2_match_data_create_from_pattern(code->code, nullptr);
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr);
    if (data == nullptr || context == nullptr || stack == nullptr) throw Error("PCRE2 is out of memory");
    pcre2_set_match_limit(context, UINT32_MAX);  // texts are long, and patterns try each place of a run in turn
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Stage() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Stage(Stage&& other) noexcept
      : code(other.code),
        matched(other.matched),
        data(std::exchange(other.data, nullptr)),
        context(std::exchange(other.context, nullptr)),
        stack(std::exchange(other.stack, nullptr)),
        text(other.text),
        at(other.at),
        found_begin(other.found_begin),
        found_end(other.found_end) {}
  Stage& operator=(Stage&&) = delete;

  void start(std::string_view on) {
    text = on, at = found_begin = found_end = 0;
    if (code->scanner == nullptr) matched = holds_additions(on) ? code->code_with_additions : code->code;
  }

  bool next(std::string_view& word) {
    if (at == text.size()) return false;
    if (code->scanner != nullptr) {
      word = text.substr(at, code->scanner(text.substr(at)));
      at += word.size();
      return true;
    }
    if (found_end <= at) find();
    const size_t end = found_begin > at ? found_begin : found_end;  // what lies in front of it is a word, too
    word = text.substr(at, end - at);
    at = end;
    return true;
  }

  void find() {
    for (size_t from = at;;) {
      const int found = pcre2_match(matched, bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
      if (found == PCRE2_ERROR_NOMATCH) {
        found_begin = found_end = text.size();
        return;
      }
      if (found <= 0) throw DataError("PCRE2 cannot cut a word: error " + std::to_string(found));
      found_begin = pcre2_get_ovector_pointer(data)[0], found_end = pcre2_get_ovector_pointer(data)[1];
      if (found_end > at) return;  // a match of nothing is a place to cut, too
      from = at + utf8_character(text.substr(at));
    }
  }
};

WordCutter::WordCutter(const WordPatterns& patterns) {
  for (const auto& code : patterns.codes_) stages_.emplace_back(*code);
}
WordCutter::~WordCutter() = default;
WordCutter::WordCutter(WordCutter&&) noexcept = default;
WordCutter& WordCutter::operator=(WordCutter&&) noexcept = default;

void WordCutter::start(std::string_view text) {
  rest_ = text;
  for (Stage& stage : stages_) stage.start({});
}

bool WordCutter::next(std::string_view& word) {
  while (!next_of(stages_.size(), word)) {
    if (rest_.empty()) return false;
    const size_t valid = utf8_prefix(rest_);
    if (valid == 0 || stages_.empty()) {
      word = rest_.substr(0, std::max<size_t>(1, valid));
      rest_.remove_prefix(word.size());
      return true;
    }
    stages_.front().start(rest_.substr(0, valid));
    rest_.remove_prefix(valid);
  }
  return true;
}

// The next word that so many stages have cut.
bool WordCutter::next_of(size_t stages, std::string_view& word) {
  if (stages == 0) return false;
  Stage& stage = stages_[stages - 1];
  while (!stage.next(word)) {
    if (!next_of(stages - 1, word)) return false;
    stage.start(word);
  }
  return true;
}

size_t last_cut_between_words(std::string_view text, size_t limit) {
  for (size_t i = limit; i > 0; --i)
    if ((text[i] == '\n' || text[i] == '\r') && ends_in_letter_or_number(text.substr(0, i))) return i;
  return 0;
}

}  // namespace trireme
