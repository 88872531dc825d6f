#include "test/house/comments.h"

#include "test/house/prose.h"
#include "test/house/source.h"

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

std::vector<string> lines_of(const string& text) {
  std::vector<string> lines;
  each_line(text, [&](int, string_view line) { lines.emplace_back(line); });
  return lines;
}

// The comment on a line, given the line without it: empty if there is none.
string comment_on(const string& line, const string& code) {
  size_t begin = 0;
  while (begin < line.size() && line[begin] == code[begin]) ++begin;
  const string comment = line.substr(begin);
  return comment.substr(std::min(comment.find_first_not_of("/*!< "), comment.size()));
}

bool is_empty(const string& code) { return code.find_first_not_of(' ') == string::npos; }

}  // namespace

std::vector<Comment> hash_comments_of(const string& script) {
  std::vector<Comment> comments;
  bool open = false;
  each_line(script, [&](int number, string_view line) {
    const size_t begin = line.find_first_not_of(" \t");
    const bool alone = begin != string_view::npos && line[begin] == '#' && !line.starts_with("#!");
    const size_t mark = alone ? begin : line.find(" # ");
    if (mark == string_view::npos) {
      open = false;
      return;
    }
    const string comment(line.substr(std::min(line.find_first_not_of("# ", mark), line.size())));
    if (open && alone)
      comments.back().text += '\n' + comment;
    else
      comments.push_back({number, !alone, comment});
    open = true;
  });
  return comments;
}

std::vector<Comment> comments_of(const string& source) {
  const std::vector<string> lines = lines_of(source), code = lines_of(code_with_strings(source));
  std::vector<Comment> comments;
  bool open = false;  // the line before belongs to a comment
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool comment = lines[i] != code[i];
    if (comment && open && is_empty(code[i])) {
      comments.back().text += '\n' + comment_on(lines[i], code[i]);
    } else if (comment) {
      comments.push_back({static_cast<int>(i) + 1, !is_empty(code[i]), comment_on(lines[i], code[i])});
    }
    open = comment;
  }
  return comments;
}

string literals_of(const string& source) {
  const string with_strings = code_with_strings(source), code = code_of(source);
  string literals = source;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\n' || (code[i] == ' ' && with_strings[i] != ' ')) continue;
    const bool blank = with_strings[i] == ' ' || code[i] == '"';
    literals[i] = blank ? ' ' : kGap;
  }
  for (size_t i = literals.find('\\'); i != string::npos; i = literals.find('\\', i + 1)) {
    if (i + 1 < literals.size() && string_view("nt").find(literals[i + 1]) != string_view::npos) literals[i + 1] = kGap;
    literals[i] = ' ';
  }
  string kept;
  size_t at = 0;
  each_line(code, [&](int, string_view line) {
    const bool include = line.starts_with("#");
    kept += include ? string(line.size(), ' ') : literals.substr(at, line.size());
    kept += '\n';
    at += line.size() + 1;
  });
  return kept;
}

}  // namespace trireme::house
