#include "data/tokenizer/word_scanner.h"

#include <array>
#include <cstdint>

#include "data/text/unicode.h"
#include "data/tokenizer/tokenizer_words.h"

namespace trireme {

namespace {

constexpr std::array<CharacterClass, 128> make_ascii() {
  std::array<CharacterClass, 128> classes{};
  for (char c = 'a'; c <= 'z'; ++c) classes[static_cast<size_t>(c)] = classes[static_cast<size_t>(c - 32)] = CharacterClass::letter;
  for (char c = '0'; c <= '9'; ++c) classes[static_cast<size_t>(c)] = CharacterClass::number;
  for (const char c : {'\t', '\v', '\f', ' '}) classes[static_cast<size_t>(c)] = CharacterClass::space;
  for (const char c : {'\r', '\n'}) classes[static_cast<size_t>(c)] = CharacterClass::newline;
  return classes;
}
constexpr std::array<CharacterClass, 128> kAscii = make_ascii();

// A place in UTF-8 that is known to be well-formed, and the character that begins there.
class Place {
 public:
  Place(const char* at, const char* end) : at_(at), end_(end) { look(); }

  bool ends() const { return at_ == end_; }
  const char* at() const { return at_; }
  char byte() const { return ends() ? '\0' : *at_; }
  bool is(CharacterClass kind) const { return !ends() && kind_ == kind; }
  bool is_space() const { return is(CharacterClass::space) || is(CharacterClass::newline); }

  Place next() const { return Place(at_ + length_, end_); }
  // Place after the characters of this kind that begin here.
  Place behind(CharacterClass kind) const {
    Place place = *this;
    while (place.is(kind)) place.at_ += place.length_, place.look();
    return place;
  }

 private:
  void look() {
    if (at_ == end_) return;
    const auto first = static_cast<uint8_t>(*at_);
    if (first < 128) {
      kind_ = kAscii[first];
      length_ = 1;
      return;
    }
    const auto low = [&](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(at_[i]) & 0x3f); };
    if (first < 0xe0) {
      length_ = 2;
      kind_ = class_of((first & 0x1fu) << 6 | low(1));
    } else if (first < 0xf0) {
      length_ = 3;
      kind_ = class_of((first & 0xfu) << 12 | low(1) << 6 | low(2));
    } else {
      length_ = 4;
      kind_ = class_of((first & 7u) << 18 | low(1) << 12 | low(2) << 6 | low(3));
    }
  }

  const char *at_, *end_;
  CharacterClass kind_ = CharacterClass::other;
  uint8_t length_ = 0;
};

// Bytes after an apostrophe that are the tail of a contraction; 0: they are none.
size_t contraction(const Place& tail, bool any_case) {
  if (tail.ends()) return 0;
  const auto letter = [&](char c) { return any_case && 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const char first = letter(tail.byte()), second = letter(tail.is(CharacterClass::letter) ? tail.next().byte() : '\0');
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 2;
  const Place place = tail;
  return any_case && place.byte() == '\xc5' && place.at()[1] == '\xbf' ? 2 : 0;  // the long s folds to s
}

struct Spaces {
  const char *last, *end;      // of the white space that begins at a place: its last character, and what comes after
  const char* behind_newline;  // the last one of it; nullptr: there is none
};

Spaces spaces_at(Place place) {
  Spaces spaces{place.at(), place.at(), nullptr};
  for (; place.is_space(); place = place.next()) {
    spaces.last = place.at();
    if (place.is(CharacterClass::newline)) spaces.behind_newline = place.at() + 1;
    spaces.end = place.next().at();
  }
  return spaces;
}

// \s+(?!\S)|\s+
const char* cut_spaces(const Place& begin, const Place& end, const Spaces& spaces) {
  return end.ends() || spaces.last == begin.at() ? spaces.end : spaces.last;
}

size_t gpt2(std::string_view text) {
  const Place begin(text.data(), text.data() + text.size());
  const auto until = [&](const char* end) { return static_cast<size_t>(end - text.data()); };
  if (begin.byte() == '\'')
    if (const size_t tail = contraction(begin.next(), false)) return 1 + tail;
  const Place place = begin.byte() == ' ' ? begin.next() : begin;
  for (const CharacterClass kind : {CharacterClass::letter, CharacterClass::number, CharacterClass::other})
    if (place.is(kind)) return until(place.behind(kind).at());
  const Spaces spaces = spaces_at(begin);
  return until(cut_spaces(begin, Place(spaces.end, text.data() + text.size()), spaces));
}

// Rules of cl100k, Llama 3 and Qwen 2: how many digits are a word, and what white space at the very end is.
template <int kDigits, bool kEndIsOneWord>
size_t gpt4(std::string_view text) {
  const Place begin(text.data(), text.data() + text.size());
  const auto until = [&](const char* end) { return static_cast<size_t>(end - text.data()); };
  if (begin.is(CharacterClass::letter)) return until(begin.behind(CharacterClass::letter).at());
  if (begin.is(CharacterClass::number)) {
    Place place = begin.next();
    for (int digits = 1; digits < kDigits && place.is(CharacterClass::number); ++digits) place = place.next();
    return until(place.at());
  }
  const Place second = begin.next();
  if (begin.byte() == '\'')
    if (const size_t tail = contraction(second, true)) return 1 + tail;
  if (!begin.is(CharacterClass::newline) && second.is(CharacterClass::letter))
    return until(second.behind(CharacterClass::letter).at());
  const Place place = begin.byte() == ' ' ? second : begin;
  if (place.is(CharacterClass::other)) return until(place.behind(CharacterClass::other).behind(CharacterClass::newline).at());
  const Spaces spaces = spaces_at(begin);
  const Place end(spaces.end, text.data() + text.size());
  if (spaces.behind_newline != nullptr && !(kEndIsOneWord && end.ends())) return until(spaces.behind_newline);
  return until(cut_spaces(begin, end, spaces));
}

}  // namespace

WordScanner scanner_of(const std::string& pattern) {
  if (pattern == patterns::gpt2) return gpt2;
  if (pattern == patterns::cl100k) return gpt4<3, true>;
  if (pattern == patterns::llama3) return gpt4<3, false>;
  if (pattern == patterns::qwen2) return gpt4<1, false>;
  return nullptr;
}

}  // namespace trireme
