#include "test/house/prose.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

constexpr char kCodeSpace = '\x1f', kCodeEnd = '\x1e';  // a blank inside a code span; the end of one

// Letters and digits; of UTF-8 the first bytes of letters, but not those of dashes and quotation marks.
bool is_alnum(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return isalnum(byte) != 0 || (byte >= 0xC3 && byte < 0xE2);
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == kGap; }

// Inline Markdown becomes the text that is shown. Line breaks inside of code and targets move to the next blank.
class Inline {
 public:
  string show(string_view text) {
    for (size_t i = 0; i < text.size();) i = step(text, i);
    return std::move(out_);
  }

 private:
  void skip(string_view part) { breaks_ += std::count(part.begin(), part.end(), '\n'); }
  size_t step(string_view text, size_t i) {
    const char c = text[i];
    if (c == '`') return code(text, i);
    if (text.substr(i, 2) == "![" || c == '[') return link(text, i);
    if (c == '<' && i + 1 < text.size() && (isalpha(static_cast<unsigned char>(text[i + 1])) != 0 || text[i + 1] == '/')) {
      const size_t end = text.find('>', i);
      if (end != string_view::npos && !text.substr(i).starts_with("<http")) {
        skip(text.substr(i, end - i));
        return end + 1;
      }
    }
    if (text.substr(i, 2) == "**") return i + 2;
    if (c == '\\' && i + 1 < text.size() && ispunct(static_cast<unsigned char>(text[i + 1])) != 0) {
      out_ += text[i + 1];
      return i + 2;
    }
    out_ += c;
    if (is_blank(c)) out_.append(std::exchange(breaks_, 0), '\n');
    return i + 1;
  }
  size_t code(string_view text, size_t i) {
    const size_t open = std::min(text.find_first_not_of('`', i), text.size());
    const string_view fence = text.substr(i, open - i);
    const size_t close = text.find(fence, open);
    if (close == string_view::npos) return open;
    const string_view inside = text.substr(open, close - open);
    skip(inside);
    for (const char c : inside) out_ += is_blank(c) ? kCodeSpace : c;
    out_ += kCodeEnd;
    return close + fence.size();
  }
  size_t link(string_view text, size_t i) {
    const size_t open = text[i] == '!' ? i + 1 : i;
    const size_t close = closing_bracket(text, open);
    const size_t end = close == string_view::npos ? 0 : end_of_target(text, close + 1);
    if (close == string_view::npos || end == close + 1) {  // brackets without a target
      out_ += text[i];
      return i + 1;
    }
    if (text[i] != '!') {
      for (size_t at = open + 1; at < close;) at = step(text.substr(0, close), at);
    }
    skip(text.substr(close, end - close));
    return end;
  }

  string out_;
  size_t breaks_ = 0;
};

bool is_abbreviation(string_view word) {
  constexpr std::array<string_view, 9> known{"e.g.", "i.e.", "cf.", "vs.", "approx.", "ca.", "fig.", "eq.", "al."};
  return std::find(known.begin(), known.end(), word) != known.end();
}

// Whether a sentence ends with `token`, which `next` follows.
bool ends_sentence(string_view token, string_view next) {
  while (!token.empty() && string_view(")]\"'*_").find(token.back()) != string_view::npos) token.remove_suffix(1);
  if (token.empty() || string_view(".!?").find(token.back()) == string_view::npos) return false;
  string word;
  for (const char c : token) word += static_cast<char>(tolower(static_cast<unsigned char>(c)));
  word.erase(0, std::min(word.find_first_not_of("(\"'*"), word.size()));
  if (is_abbreviation(word)) return false;
  const bool goes_on = !next.empty() && islower(static_cast<unsigned char>(next[0])) != 0;
  return !(goes_on && (word.ends_with("etc.") || word.ends_with("...")));
}

struct Token {
  int line;
  string_view text;
};

std::vector<Token> tokens_of(string_view text, int line) {
  std::vector<Token> tokens;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && !is_blank(text[i])) continue;
    if (i > begin) tokens.push_back({line, text.substr(begin, i - begin)});
    if (i < text.size() && text[i] == '\n') ++line;
    begin = i + 1;
  }
  return tokens;
}

// Counts a word; the first six are kept as the opening.
void add_word(const Token& token, Sentence& sentence) {
  if (sentence.words++ == 0) sentence.line = token.line;
  if (sentence.words > 6) return;
  if (sentence.words > 1) sentence.opening += ' ';
  for (const char c : token.text) sentence.opening += c == kCodeSpace ? ' ' : c;
  std::erase(sentence.opening, kCodeEnd);
}

}  // namespace

size_t end_of_target(string_view text, size_t at) {
  if (at >= text.size() || (text[at] != '(' && text[at] != '[')) return at;
  const size_t end = text.find(text[at] == '(' ? ')' : ']', at);
  return end == string_view::npos ? at : end + 1;
}

size_t closing_bracket(string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth == 0) return i;
  }
  return string_view::npos;
}

string shown(string_view text) { return Inline().show(text); }

std::vector<Sentence> sentences_of(const string& text, int line) {
  const std::vector<Token> tokens = tokens_of(text, line);
  std::vector<Sentence> sentences;
  Sentence sentence;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const string_view token = tokens[i].text;
    if (std::any_of(token.begin(), token.end(), is_alnum)) add_word(tokens[i], sentence);
    const bool ends = i + 1 == tokens.size() || ends_sentence(token, tokens[i + 1].text);
    if (ends && sentence.words > 0) sentences.push_back(std::exchange(sentence, {}));
  }
  return sentences;
}

int columns_of(string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(),
                                        [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80 && c != kCodeEnd; }));
}

std::vector<Word> words_of(const string& text, int line) {
  std::vector<Word> words;
  for (const Token& token : tokens_of(text, line)) {
    string_view inner = token.text;
    while (!inner.empty() && !is_alnum(inner.front())) inner.remove_prefix(1);
    while (!inner.empty() && !is_alnum(inner.back())) inner.remove_suffix(1);
    Word word{token.line};
    for (const char c : inner) word.text += static_cast<char>(tolower(static_cast<unsigned char>(c)));
    word.code = token.text.find_first_of("_(/`\x1e\x1f", 1) != string_view::npos || token.text.starts_with('`');
    word.ends = string_view(".,;:!?").find(token.text.back()) != string_view::npos;
    const size_t after = static_cast<size_t>(token.text.data() + token.text.size() - text.data());
    const size_t next = text.find_first_not_of(" \t\n", after);
    if (next != string::npos && text[next] == kGap) word.ends = true;
    if (!word.text.empty())
      words.push_back(std::move(word));
    else if (!words.empty())
      words.back().ends = true;
  }
  return words;
}

}  // namespace trireme::house
