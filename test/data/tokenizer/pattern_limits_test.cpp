// Patterns out of files with too many ways to match: refused in time, when they are opened or on the text that shows it.
#include <ctime>

#include "base/error.h"
#include "data/tokenizer/tokenizer_words.h"
#include "test/catch.h"

using namespace trireme;

namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string repeated(const std::string& unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

// Cuts a text by a pattern: what comes of it, and the seconds that it took.
std::pair<std::string, double> outcome(const std::string& pattern, const std::string& text) {
  const double begin = processor_seconds();
  std::string said;
  try {
    const WordPatterns compiled({pattern}, Cutting::regex);
    said = "opened";
    WordCutter cutter(compiled);
    cutter.start(text);
    for (std::string_view word; cutter.next(word);) {
    }
    said = "cut";
  } catch (const DataError& error) {
    said += std::string(said.empty() ? "" : ": ") + error.what();
  }
  return {said, processor_seconds() - begin};
}

constexpr double kInTime = std::string_view(TRIREME_SANITIZE).empty() ? 1 : 10;  // seconds of the processor

}  // namespace

TEST_CASE("a pattern with exponentially many ways to match is refused when it is opened") {
  for (const std::string pattern : {"(a|a)*b|(a|aa)+c", "(x+x+)+y", R"((\p{L}+)*1)", R"((?:\s|\s\s)+x)", R"((?:[0-9]|\d)*!)"}) {
    CAPTURE(pattern);
    const auto [said, seconds] = outcome(pattern, "plain text");
    CHECK_THAT(said, ContainsSubstring("the pattern " + pattern + " exceeds a limit of PCRE2 (-47) on a text of "));
    CHECK(seconds < kInTime);
  }
}

TEST_CASE("a pattern that only some texts make slow is refused on the text that does, with the place") {
  const auto [many_ways, first] = outcome("(?:xyz|xyz)*!|ok", "ok" + repeated("xyz", 40));
  CHECK_THAT(many_ways, ContainsSubstring(
                            "opened: the pattern (?:xyz|xyz)*!|ok exceeds a limit of PCRE2 (-47) on a text of 122 bytes at byte 2: "
                            "'xyzxyz"));
  CHECK(first < kInTime);
  // Each place stays below the limit of steps; all of them do not stay below that of time.
  const auto [slow, second] = outcome("(?:xyz|xyz){1,18}!", repeated("xyz", 2000) + "-!");
  CHECK_THAT(slow, ContainsSubstring("opened: the pattern (?:xyz|xyz){1,18}! takes too long on a text of 6002 bytes at byte "));
  CHECK(second < 4 * kInTime);
}

TEST_CASE("long patterns and long lists of patterns are refused") {
  CHECK_THAT(outcome(std::string(20000, 'a'), "a").first, ContainsSubstring("... has 20000 bytes, at most 16384"));
  CHECK_THROWS_WITH(WordPatterns(std::vector<std::string>(65, "a")), "has 65 patterns, at most 64");
}

TEST_CASE("a match that begins far after the last one is found") {
  const std::string gap = repeated("\xe4\xbd\xa0-", 100);
  const WordPatterns compiled({R"(\d+)"});
  WordCutter cutter(compiled);
  const std::string text = gap + "123" + gap + "4";
  cutter.start(text);
  std::vector<std::string> words;
  for (std::string_view word; cutter.next(word);) words.emplace_back(word);
  CHECK(words == std::vector<std::string>{gap, "123", gap, "4"});
}
