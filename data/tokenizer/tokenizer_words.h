// Pre-tokenisation: text cut into words, none of which a BPE token ever crosses.
//
// A pattern is a regular expression, as tokenizer.json files and tiktoken write them: what it matches is a word, what lies between
// two matches is one, too. Where there are several patterns, each cuts the words of the one before it. Bytes that are not UTF-8
// come out one by one; the text on each side of them is cut as if it stood alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// The published patterns.
namespace patterns {
// Radford et al. 2019: a contraction's tail, or a run of letters, digits or other characters with at most one space in front, or
// white space of which the last character is left to the word after it.
extern const std::string gpt2;
extern const std::string cl100k;  // OpenAI's cl100k_base, of GPT-4
extern const std::string o200k;   // OpenAI's o200k_base, of GPT-4o
extern const std::string llama3;  // digits by threes
extern const std::string qwen2;   // digits one by one
}  // namespace patterns

// The pattern of one of these names; ConfigError, with all of them, for another.
const std::string& pattern_named(const std::string& name);

enum class Cutting { fastest, regex };  // the published patterns by hand where they are (word_scanner.h); each by PCRE2

// Patterns, compiled. May be used by several threads.
class WordPatterns {
 public:
  // DataError for one that cannot be compiled, that other libraries read differently, or that takes too many steps on short texts.
  explicit WordPatterns(const std::vector<std::string>& patterns, Cutting cutting = Cutting::fastest);
  ~WordPatterns();
  WordPatterns(const WordPatterns&) = delete;
  WordPatterns& operator=(const WordPatterns&) = delete;

  struct Code;

 private:
  friend class WordCutter;
  void try_pattern(const std::string& pattern) const;

  std::vector<std::unique_ptr<const Code>> codes_;
};

// Processor time that patterns may take on one text.
class PatternBudget;

// Cuts text into words, for one thread. DataError, with the pattern and the place, if a pattern exceeds its steps, its memory or
// 0.1 s and 50 us a byte of the text.
class WordCutter {
 public:
  explicit WordCutter(const WordPatterns& patterns);  // which outlive it
  ~WordCutter();
  WordCutter(WordCutter&&) noexcept;
  WordCutter& operator=(WordCutter&&) noexcept;

  // Begins on `text`, which must outlive the calls of next().
  void start(std::string_view text);
  // The next word, in order and without gaps; false after the last.
  bool next(std::string_view& word);

 private:
  struct Stage;
  bool next_of(size_t stage, std::string_view& word);

  std::vector<Stage> stages_;
  std::unique_ptr<PatternBudget> budget_;
  std::string_view rest_;  // not yet looked at for UTF-8
};

// Place at which a text of more than `limit` bytes can be cut so that its two parts have the words of the whole by each of the
// published patterns: in front of a line's end that follows a letter or number. The last such place within `limit` bytes; 0: there
// is none.
size_t last_cut_between_words(std::string_view text, size_t limit);

}  // namespace trireme
