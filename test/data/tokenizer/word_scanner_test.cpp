// Hand-written scanners of the patterns, compared with the same patterns in PCRE2; and an encoder's
// cache of words.
#include "data/tokenizer/word_scanner.h"

#include <algorithm>
#include <random>
#include <unordered_map>

#include "data/text/unicode.h"
#include "data/tokenizer/tokenizer_words.h"
#include "data/tokenizer/word_cache.h"
#include "test/catch.h"

using namespace trireme;

namespace {

using Words = std::vector<std::string_view>;

const std::vector<const std::string*> kByHand{&patterns::gpt2, &patterns::cl100k, &patterns::llama3, &patterns::qwen2};

class Cutter {
 public:
  Cutter(const std::string& pattern, Cutting cutting) : patterns_({pattern}, cutting), cutter_(patterns_) {}
  Words operator()(std::string_view text) {
    Words words;
    cutter_.start(text);
    for (std::string_view word; cutter_.next(word);) words.push_back(word);
    return words;
  }

 private:
  WordPatterns patterns_;
  WordCutter cutter_;
};

std::string utf8(uint32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xc0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xe0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | point >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace

TEST_CASE("the published patterns are cut by hand as PCRE2 cuts them") {
  const std::vector<std::string> parts{"'",      "'",          "s",      "S",      "\u017f", "re",     "rE",     "VE",
                                       "ll",     "lL",         "L",      "d",      "m",      "T",      "k",      "e",
                                       " ",      " ",          " ",      "\t",     "\n",     "\n",     "\r",     "\v",
                                       "1",      "23",         "\u0663", "!",      "/",      "\u00e9", "\u4f60", "\u00a0",
                                       "\u3000", "\U0001f600", "\u0301", "\u2163", "\x1c",   "\u180e", "\xff",   "\xe4\xbd"};
  std::mt19937 chance(5);
  for (const std::string* pattern : kByHand) {
    REQUIRE(scanner_of(*pattern) != nullptr);
    Cutter by_hand(*pattern, Cutting::fastest), by_regex(*pattern, Cutting::regex);
    for (int i = 0; i < 40000; ++i) {
      std::string text;
      for (size_t n = chance() % 12 + 1; n > 0; --n) text += parts[chance() % parts.size()];
      const Words words = by_hand(text);
      if (words != by_regex(text)) FAIL(*pattern << ": " << Catch::StringMaker<std::string>::convert(text));
    }
  }
  CHECK(scanner_of(patterns::o200k) == nullptr);
}

TEST_CASE("every character that both libraries know is of the class that PCRE2 says", "[unsanitized]") {
  Cutter unassigned(R"(\p{Cn})", Cutting::regex);
  int64_t unknown = 0;
  for (const std::string* pattern : {&patterns::gpt2, &patterns::llama3}) {
    Cutter by_hand(*pattern, Cutting::fastest), by_regex(*pattern, Cutting::regex);
    for (uint32_t point = 0; point < 0x110000; ++point) {
      if (0xd800 <= point && point < 0xe000) continue;
      const std::string character = utf8(point), text = "a" + character + "1" + character + "!" + character + " " + character;
      if (by_hand(text) == by_regex(text)) continue;
      ++unknown;  // to the older of the two
      if (unassigned(character + "a").size() != 2 && is_assigned(point)) FAIL(*pattern << ": U+" << std::hex << point);
    }
  }
  CHECK(unknown < 30000);  // from about two years of Unicode, after 16
}

TEST_CASE("letters, marks and numbers since Unicode 15 are known however old the libraries are") {
  CHECK(class_of(0x2ebf0) == CharacterClass::letter);  // CJK extension I
  CHECK(class_of(0x1e4f0) == CharacterClass::number);  // Nag Mundari's digit zero
  CHECK(class_of(0x1e4ec) == CharacterClass::other);   // and a mark of it
  Cutter lower(R"(\p{Ll}+)", Cutting::regex), upper(R"(\p{Lu}+)", Cutting::regex), none(R"(\P{Ll}+)", Cutting::regex);
  const std::string capital = utf8(0x10d50), small = utf8(0x10d70), text = "a" + small + "B" + capital;  // Garay's A
  CHECK(lower(text) == Words{"a" + small, "B" + capital});
  CHECK(upper(text) == Words{"a" + small, "B" + capital});
  CHECK(none("!" + text) == Words{"!", "a" + small, "B" + capital});
  for (const std::string* pattern : {&patterns::gpt2, &patterns::llama3}) {
    Cutter by_hand(*pattern, Cutting::fastest), by_regex(*pattern, Cutting::regex);
    for (const UnicodeAddition& added : unicode_additions())
      for (uint32_t point = added.first; point <= added.last; ++point) {
        const std::string character = utf8(point), words = "a" + character + "1" + character + "!" + character + " " + character;
        if (by_hand(words) != by_regex(words)) FAIL(*pattern << ": U+" << std::hex << point);
      }
  }
}

TEST_CASE("an encoder's memory of words gives back what was kept last, or nothing") {
  WordCache cache;
  std::unordered_map<std::string, std::vector<int32_t>> kept;
  std::mt19937 chance(7);
  int64_t found = 0;
  for (int32_t i = 0; i < 400000; ++i) {  // three times as many words as it holds
    std::string word(chance() % WordCache::kLongest + 1, '\0');
    for (char& c : word) c = static_cast<char>(chance() % (i % 2 == 0 ? 256 : 2));
    const auto known = cache.find(word);
    if (!known.empty()) {
      if (!std::ranges::equal(known, kept.at(word))) FAIL(Catch::StringMaker<std::string>::convert(word));
      ++found;
      continue;
    }
    std::vector<int32_t>& tokens = kept[word];
    tokens.assign(chance() % word.size() + 1, i);
    cache.keep(word, tokens);
    REQUIRE(std::ranges::equal(cache.find(word), tokens));
  }
  CHECK(found > 50000);
  CHECK(found + static_cast<int64_t>(kept.size()) < 400000);  // some were forgotten, and learnt again
}
