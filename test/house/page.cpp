#include "test/house/page.h"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

// "- item", "2. item", "> quote": the length of the mark and the blanks before it; 0 where there is none.
size_t list_mark(string_view line) {
  size_t at = line.find_first_not_of(' ');
  if (at == string_view::npos) return 0;
  const size_t digits = line.find_first_not_of("0123456789", at);
  if (digits != string_view::npos && digits > at && digits + 1 < line.size() && (line[digits] == '.' || line[digits] == ')'))
    at = digits;
  else if (string_view("-*+>").find(line[at]) == string_view::npos)
    return 0;
  return at + 1 < line.size() && line[at + 1] == ' ' ? at + 2 : 0;
}

// One link, image or HTML element, which has no place to break.
bool is_unbreakable(string_view line) {
  line.remove_prefix(std::min(std::max(list_mark(line), line.find_first_not_of(' ')), line.size()));
  if (line.starts_with('<')) return line.ends_with('>');
  while (line.starts_with('[') || line.starts_with("![")) {
    const size_t close = closing_bracket(line, line.find('['));
    if (close == string_view::npos) return false;
    if (line.substr(close, 3) == "]: ") return line.find(' ', close + 3) == string_view::npos;
    const size_t end = end_of_target(line, close + 1);
    if (end == close + 1) return false;
    line.remove_prefix(end);
    line.remove_prefix(std::min(line.find_first_not_of(".,;:) "), line.size()));
  }
  return line.find(' ') == string_view::npos;
}

std::vector<string_view> cells_of(string_view row) {
  std::vector<string_view> cells;
  bool code = false;
  size_t begin = row.find('|') + 1;
  for (size_t i = begin; i < row.size(); ++i) {
    if (row[i] == '`') code = !code;
    if (row[i] != '|' || code || row[i - 1] == '\\') continue;
    cells.push_back(row.substr(begin, i - begin));
    begin = i + 1;
  }
  if (row.find_first_not_of(' ', begin) != string_view::npos) cells.push_back(row.substr(begin));
  return cells;
}

string_view without_blanks(string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

class Parser {
 public:
  void line(int number, string_view text) {
    page_.line_count = number;
    const string_view content = without_blanks(text);
    if (comment_ || (!fence_ && content.starts_with("<!--"))) {
      comment_ = content.find("-->") == string_view::npos;
      return;
    }
    if (content.starts_with("```") || content.starts_with("~~~")) return fence(content);
    if (fence_) return code(number, content);
    if (content.starts_with('|')) return row(number, content);
    if (!is_unbreakable(text)) page_.lines.push_back({number, columns_of(text)});
    const size_t mark = list_mark(text);
    if (content.empty() || content.starts_with('#') || mark > 0) flush();
    if (content.starts_with('#')) return add_words(shown(content), number);
    if (content.empty()) return;
    if (block_.empty()) begin_ = number;
    block_ += string(text.substr(mark)) + '\n';
  }
  Page finish() {
    flush();
    return std::move(page_);
  }

 private:
  void fence(string_view content) {
    flush();
    if (!fence_)
      fence_ = string(content.substr(0, 3));
    else if (content.starts_with(*fence_))
      fence_.reset();
  }
  void code(int number, string_view content) {
    const size_t comment = content.starts_with('#') ? 0 : content.find(" # ");
    if (comment != string_view::npos) add_words(string(content.substr(comment)), number);
  }
  void row(int number, string_view content) {
    flush();
    for (const string_view cell : cells_of(content)) {
      const string text = shown(without_blanks(cell));
      page_.cells.push_back({number, columns_of(text)});
      add_words(text, number);
    }
  }
  void flush() {
    if (block_.empty()) return;
    const string text = shown(block_);
    for (Sentence& sentence : sentences_of(text, begin_)) page_.sentences.push_back(std::move(sentence));
    add_words(text, begin_);
    block_.clear();
  }
  void add_words(const string& text, int number) {
    for (Word& word : words_of(text, number)) page_.words.push_back(std::move(word));
    if (!page_.words.empty()) page_.words.back().ends = true;
  }

  Page page_;
  string block_;
  int begin_ = 0;
  std::optional<string> fence_;  // its first three characters
  bool comment_ = false;
};

}  // namespace

Page parse_page(const string& markdown) {
  Parser parser;
  each_line(markdown, [&](int number, string_view line) { parser.line(number, line); });
  return parser.finish();
}

std::vector<Source> read_pages(const string& root) {
  namespace fs = std::filesystem;
  std::vector<Source> pages;
  for (const char* name : {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"})
    if (fs::exists(fs::path(root) / name)) pages.push_back(read_source(root, name));
  const size_t first = pages.size();
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(read_source(root, fs::relative(entry.path(), root).string()));
  std::sort(pages.begin() + static_cast<ptrdiff_t>(first), pages.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return pages;
}

}  // namespace trireme::house
