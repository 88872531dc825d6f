#include <algorithm>
#include <array>
#include <numeric>

#include "test/house/comments.h"
#include "test/house/page.h"
#include "test/house/rules.h"

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

// Limits on pages.
constexpr int kPageColumns = 100, kCellColumns = 60, kReadmeLines = 120, kLongestSentence = 30, kLongestOpening = 25;
constexpr double kMeanSentence = 16;

struct Phrase {
  std::vector<string_view> words;
  string_view instead;
};
const std::vector<Phrase> kPhrases{
    {{"tell"}, "report, print, name or show"},
    {{"tells"}, "reports, prints, names or shows"},
    {{"told"}, "reported, printed, named or shown"},
    {{"telling"}, "reporting, naming or showing"},
    {{"go", "on"}, "continue"},
    {{"goes", "on"}, "continues"},
    {{"going", "on"}, "continuing"},
    {{"went", "on"}, "continued"},
    {{"alike"}, "the same, identical"},
    {{"on", "its", "way"}, "in flight"},
    {{"on", "their", "way"}, "in flight"},
    {{"get", "on", "no", "more"}, "make no progress"},
    {{"gets", "on", "no", "more"}, "makes no progress"},
    {{"stand", "twice"}, "appear twice"},
    {{"stands", "twice"}, "appears twice"},
    {{"of", "8", "bits"}, "8-bit"},
    {{"of", "16", "bits"}, "16-bit"},
    {{"of", "32", "bits"}, "32-bit"},
    {{"is", "no"}, "is not a"},
    {{"behind"}, "after"},
};

bool is_one_of(string_view word, std::initializer_list<string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// "left behind", "hidden behind", "behind the door", "there is no", "is no longer".
bool is_fine(const Phrase& phrase, const std::vector<Word>& words, size_t at) {
  const auto word = [&](size_t i) { return i < words.size() ? string_view(words[i].text) : string_view(); };
  const size_t after = at + phrase.words.size();
  if (phrase.words[0] == "is")
    return word(at - 1) == "there" || is_one_of(word(after), {"longer", "more", "less", "better", "worse", "faster", "slower",
                                                              "larger", "smaller", "need", "reason", "way"});
  if (phrase.words[0] != "behind") return false;
  if (word(after) == "the" && is_one_of(word(after + 1), {"door", "scenes"})) return true;
  for (size_t i = at - std::min<size_t>(at, 4); i < at; ++i)
    if (is_one_of(word(i), {"leave", "leaves", "leaving", "left", "stay", "stays", "hide", "hides", "hidden", "lag", "lags", "fall",
                            "falls"}))
      return true;
  return false;
}

bool begins_at(const Phrase& phrase, const std::vector<Word>& words, size_t at) {
  if (at + phrase.words.size() > words.size()) return false;
  for (size_t i = 0; i < phrase.words.size(); ++i) {
    const Word& word = words[at + i];
    if (word.code || word.text != phrase.words[i] || (word.ends && i + 1 < phrase.words.size())) return false;
  }
  return true;
}

string joined_words(const std::vector<Word>& words, size_t begin, size_t end) {
  string all;
  for (size_t i = begin; i < std::min(end, words.size()); ++i) all += (all.empty() ? "" : " ") + words[i].text;
  return all;
}

void check_phrases(const string& path, const std::vector<Word>& words, Problems& problems) {
  for (size_t i = 0; i < words.size(); ++i) {
    for (const Phrase& phrase : kPhrases) {
      if (!begins_at(phrase, words, i) || is_fine(phrase, words, i)) continue;
      const size_t end = i + phrase.words.size();
      problems.push_back(at({path, {}}, words[i].line) + "'" + joined_words(words, i, end) + "' in '" +
                         joined_words(words, i - std::min<size_t>(i, 3), end + 3) + "': say " + string(phrase.instead));
    }
  }
}

// Names of tests are read by people; other texts of tests are data.
string test_names(const string& literals, const string& code) {
  string kept;
  size_t at = 0;
  each_line(code, [&](int, string_view line) {
    const bool name = line.find("TEST_CASE(") != string_view::npos || line.find("SECTION(") != string_view::npos;
    kept += (name ? literals.substr(at, line.size()) : string()) + '\n';
    at += line.size() + 1;
  });
  return kept;
}

std::vector<Comment> all_comments(const Source& source) {
  return is_cpp(source.path) ? comments_of(source.text) : hash_comments_of(source.text);
}

string first_word(const string& text) { return text.substr(0, text.find_first_of(" ,:\n")); }

void check_header(const Source& source, const Comment& opening, Problems& problems) {
  if (is_one_of(first_word(opening.text), {"Whether", "How", "Why", "Who", "Which"}))
    problems.push_back(at(source, 1) + "a header opens with a noun or a verb, not '" + first_word(opening.text) + "'");
  const std::vector<Sentence> sentences = sentences_of(opening.text, 1);
  if (!sentences.empty() && sentences[0].words > kLongestOpening)
    problems.push_back(at(source, 1) + "a header opens with a sentence of " + std::to_string(sentences[0].words) + " words; " +
                       std::to_string(kLongestOpening) + " are allowed");
}

string fixed(double value) {
  const string digits = std::to_string(value);
  return digits.substr(0, digits.find('.') + 2);
}

void check_sentences(const Source& source, const Page& page, Problems& problems) {
  for (const Sentence& sentence : page.sentences)
    if (sentence.words > kLongestSentence)
      problems.push_back(at(source, sentence.line) + std::to_string(sentence.words) + " words; " +
                         std::to_string(kLongestSentence) + " are allowed: '" + sentence.opening + " ...'");
  if (const double mean = mean_words(page); mean > kMeanSentence)
    problems.push_back(at(source, 1) + fixed(mean) + " words a sentence; " + fixed(kMeanSentence) + " are allowed");
}

}  // namespace

double mean_words(const Page& page) {
  const auto add = [](int sum, const Sentence& sentence) { return sum + sentence.words; };
  const int words = std::accumulate(page.sentences.begin(), page.sentences.end(), 0, add);
  return words / std::max(1.0, static_cast<double>(page.sentences.size()));
}

Problems check_prose(const std::vector<Source>& pages) {
  Problems problems;
  for (const Source& source : pages) {
    const Page page = parse_page(source.text);
    const auto check_widths = [&](const std::vector<Width>& widths, int limit, const string& what) {
      for (const Width& width : widths)
        if (width.columns > limit)
          problems.push_back(at(source, width.line) + what + std::to_string(width.columns) + " columns; " + std::to_string(limit) +
                             " are allowed");
    };
    check_widths(page.lines, kPageColumns, "a line of ");
    check_widths(page.cells, kCellColumns, "a cell of ");
    check_sentences(source, page, problems);
    if (source.path == "README.md" && page.line_count > kReadmeLines)
      problems.push_back(at(source, page.line_count) + std::to_string(page.line_count) + " lines; " + std::to_string(kReadmeLines) +
                         " are allowed");
  }
  return problems;
}

Problems check_page_words(const std::vector<Source>& pages) {
  Problems problems;
  for (const Source& page : pages) check_phrases(page.path, parse_page(page.text).words, problems);
  return problems;
}

Problems check_source_words(const std::vector<Source>& sources) {
  Problems problems;
  for (const Source& source : sources) {
    for (const Comment& comment : all_comments(source)) check_phrases(source.path, words_of(comment.text, comment.line), problems);
    if (!is_cpp(source.path)) continue;
    const string literals = literals_of(source.text);
    const string read = source.path.starts_with("test/") ? test_names(literals, code_of(source.text)) : literals;
    check_phrases(source.path, words_of(read, 1), problems);
  }
  return problems;
}

Problems check_openings(const std::vector<Source>& sources) {
  Problems problems;
  for (const Source& source : sources) {
    for (const Comment& comment : all_comments(source)) {
      string word = first_word(comment.text);
      const bool lower = !word.empty() && islower(static_cast<unsigned char>(word[0])) != 0;
      if (lower && !comment.after_code) word[0] = static_cast<char>(toupper(static_cast<unsigned char>(word[0])));
      if (is_one_of(word, {"Of", "What", "Where", "That"}))
        problems.push_back(at(source, comment.line) + "a comment begins with a noun or a verb, not '" + first_word(comment.text) +
                           "'");
      if (comment.line == 1 && is_header(source.path)) check_header(source, comment, problems);
    }
  }
  return problems;
}

}  // namespace trireme::house
