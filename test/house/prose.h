// English text as words and sentences, with inline Markdown resolved.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::house {

// One word in lower case, without the punctuation around it.
struct Word {
  int line = 0;
  std::string text{};
  bool code = false;  // a code span, call or path: not an English word
  bool ends = false;  // punctuation or a gap follows: no phrase crosses it
};

struct Sentence {
  int line = 0;  // first line
  int words = 0;
  std::string opening{};  // first six words
};

// Inline Markdown as displayed: link text without targets, no images, no HTML tags.
std::string shown(std::string_view text);

// A code span is one word. A list item or paragraph ends its last sentence, with or without a full stop.
std::vector<Sentence> sentences_of(const std::string& text, int line);
// `line` is the number of the first line; kGap separates phrases.
std::vector<Word> words_of(const std::string& text, int line);
constexpr char kGap = '\x1d';

// Characters of UTF-8 text as displayed.
int columns_of(std::string_view text);
// The bracket that closes the one at `open`; npos if none does.
size_t closing_bracket(std::string_view text, size_t open);
// The end of "(target)" or "[reference]" at `at`; `at` if there is none.
size_t end_of_target(std::string_view text, size_t at);

}  // namespace trireme::house
