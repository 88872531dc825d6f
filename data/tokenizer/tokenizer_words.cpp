#include "data/tokenizer/tokenizer_words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/word_pattern.h"
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

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

constexpr size_t kLongestPattern = 16 << 10;  // bytes; published ones have up to 2,000
constexpr size_t kMostPatterns = 64;
constexpr size_t kStarts = 64;                 // places of a text that one call of PCRE2 tries
constexpr uint32_t kSteps = 1'000'000;         // of PCRE2 from one place, and as many for each byte after it as
constexpr uint32_t kStepsPerByte = 16;         // published patterns need four
constexpr uint32_t kMostKibibytes = 64 << 10;  // of PCRE2's backtracking, where it has no JIT

[[noreturn]] void refuse(const std::string& pattern, std::string_view text, size_t at, const std::string& what) {
  throw DataError(trireme::text("the pattern ", shown_pattern(pattern), " ", what, " on a text of ", text.size(), " bytes at byte ",
                                at, ": '", printable(text.substr(at, utf8_prefix(text.substr(at, 40)))),
                                "'; a pattern with fewer ways to match is needed"));
}

}  // namespace

// Processor time that patterns may take on one text. The coarse clock costs 5 ns a reading; as it also runs while the thread waits,
// time is measured once more by the thread's own clock before a pattern is refused.
class PatternBudget {
 public:
  void start(size_t bytes) { allowed_ = 100'000'000 + 50'000 * static_cast<int64_t>(bytes), spent_ = 0, exact_ = false; }
  int64_t now() const {
    timespec time{};
    clock_gettime(exact_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  }
  // Counts a call that began at `begin`; false: the text has taken too long.
  bool spend(int64_t begin) {
    spent_ += now() - begin;
    if (spent_ <= allowed_) return true;
    if (exact_) return false;
    exact_ = true, spent_ = 0;
    return true;
  }

 private:
  int64_t allowed_ = 0, spent_ = 0;  // nanoseconds
  bool exact_ = false;
};

struct WordPatterns::Code {
  const std::string pattern;
  const WordScanner scanner;  // or nullptr, and
  pcre2_code *code = nullptr, *code_with_additions = nullptr;

  Code(const std::string& written, Cutting cutting)
      : pattern(written), scanner(cutting == Cutting::fastest ? scanner_of(pattern) : nullptr) {
    if (scanner != nullptr) return;
    if (pattern.size() > kLongestPattern)
      throw DataError(text("the pattern ", shown_pattern(pattern), " has ", pattern.size(), " bytes, at most ", kLongestPattern));
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
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
    pcre2_code* code = pcre2_compile(bytes_of(spelled), spelled.size(), kOptions, &error, &offset, nullptr);
    if (code == nullptr) {
      std::array<PCRE2_UCHAR, 256> message{};
      pcre2_get_error_message(error, message.data(), message.size());
      throw DataError("the pattern " + shown_pattern(pattern) +
                      " is not a regular expression: " + reinterpret_cast<const char*>(message.data()));
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching is interpreted
    return code;
  }
};

WordPatterns::WordPatterns(const std::vector<std::string>& patterns, Cutting cutting) {
  if (patterns.size() > kMostPatterns) throw DataError(text("has ", patterns.size(), " patterns, at most ", kMostPatterns));
  for (const std::string& pattern : patterns) {
    codes_.push_back(std::make_unique<const Code>(pattern, cutting));
    if (codes_.back()->scanner == nullptr) try_pattern(pattern);
  }
}

// Cuts texts that patterns with too many ways to match take long on: runs of one character and of a pair, of those that the pattern
// names and of each kind, before one that ends them.
void WordPatterns::try_pattern(const std::string& pattern) const {
  constexpr size_t kRun = 64, kMostCharacters = 24;
  std::string characters = "a A0 \n!'";
  for (const char c : pattern)
    if (c > ' ' && c < 0x7f && characters.find(c) == std::string::npos && characters.size() < kMostCharacters) characters += c;
  const std::string end = "\x01" + characters;  // has what a match may need: where that is missing, PCRE2 does not try
  WordCutter cutter(*this);
  const auto cut = [&](std::string_view unit) {
    std::string probe;
    while (probe.size() < kRun) probe += unit;
    cutter.start(probe += end);
    for (std::string_view word; cutter.next(word);) {
    }
  };
  for (const char first : characters) {
    cut(std::string_view(&first, 1));
    for (const char second : std::string_view("a 0\n")) cut(std::string{first, second});
  }
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
    pcre2_set_heap_limit(context, kMostKibibytes);
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
    if (code->scanner != nullptr) return;
    matched = holds_additions(on) ? code->code_with_additions : code->code;
    const uint64_t steps = kSteps + kStepsPerByte * static_cast<uint64_t>(on.size());
    pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
  }

  bool next(std::string_view& word, PatternBudget& budget) {
    if (at == text.size()) return false;
    if (code->scanner != nullptr) {
      word = text.substr(at, code->scanner(text.substr(at)));
      at += word.size();
      return true;
    }
    if (found_end <= at) find(budget);
    const size_t end = found_begin > at ? found_begin : found_end;  // what lies in front of it is a word, too
    word = text.substr(at, end - at);
    at = end;
    return true;
  }

  // The place up to which one call may begin a match.
  size_t last_start(size_t from) const {
    size_t last = from + kStarts;
    while (last < text.size() && (static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) ++last;
    return std::min(last, text.size());
  }

  void find(PatternBudget& budget) {
    for (size_t from = at;;) {
      const size_t last = last_start(from);
      pcre2_set_offset_limit(context, last);
      const int64_t begin = budget.now();
      const int found = pcre2_match(matched, bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
      if (!budget.spend(begin)) refuse(code->pattern, text, from, "takes too long");
      if (found == PCRE2_ERROR_NOMATCH && last < text.size()) {
        from = last;
        continue;
      }
      if (found == PCRE2_ERROR_NOMATCH) {
        found_begin = found_end = text.size();
        return;
      }
      if (found <= 0) refuse(code->pattern, text, from, trireme::text("exceeds a limit of PCRE2 (", found, ")"));
      found_begin = pcre2_get_ovector_pointer(data)[0], found_end = pcre2_get_ovector_pointer(data)[1];
      if (found_end > at) return;  // a match of nothing is a place to cut, too
      from = at + utf8_character(text.substr(at));
    }
  }
};

WordCutter::WordCutter(const WordPatterns& patterns) : budget_(std::make_unique<PatternBudget>()) {
  for (const auto& code : patterns.codes_) stages_.emplace_back(*code);
}
WordCutter::~WordCutter() = default;
WordCutter::WordCutter(WordCutter&&) noexcept = default;
WordCutter& WordCutter::operator=(WordCutter&&) noexcept = default;

void WordCutter::start(std::string_view text) {
  rest_ = text;
  budget_->start(text.size());
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
  while (!stage.next(word, *budget_)) {
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
