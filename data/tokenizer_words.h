// Pre-tokenisation: text cut into words, none of which a BPE token ever crosses.
//
// The pattern is GPT-2's (Radford et al. 2019): a contraction's tail, or a run of letters, digits or other characters with at most
// one space in front, or white space of which the last character is left to the word after it. Bytes that are not UTF-8 come out
// one by one; the text on each side of them is cut as if it stood alone.
#pragma once

#include <memory>
#include <string_view>

namespace trireme {

class WordCutter {
 public:
  WordCutter();
  ~WordCutter();
  WordCutter(WordCutter&&) noexcept;
  WordCutter& operator=(WordCutter&&) noexcept;

  // Begins on `text`, which must outlive the calls of next().
  void start(std::string_view text);
  // The next word, in order and without gaps; false after the last.
  bool next(std::string_view& word);

 private:
  struct Match;
  std::unique_ptr<Match> match_;
  std::string_view rest_;
  size_t valid_ = 0;  // bytes in front of rest_ known to be UTF-8
};

// Where a text of more than `limit` bytes can be cut so that its two parts have the words of the whole: in front of a newline that
// follows a visible ASCII character. The last such place within `limit` bytes; where there is none, the last character's start.
size_t cut_between_words(std::string_view text, size_t limit);

}  // namespace trireme
