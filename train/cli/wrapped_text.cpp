#include "train/cli/wrapped_text.h"

#include <algorithm>

namespace trireme {
namespace {

constexpr size_t kDescriptions = 30;  // CLI11's column of them, unless an option's name reaches it

// The column at which the description of an option begins, or else the first word.
size_t text_column(std::string_view line) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  if (line.starts_with("  --") && line.size() > kDescriptions && line[kDescriptions - 1] == ' ' && line[kDescriptions] != ' ')
    return kDescriptions;
  const size_t gap = line.find("  ", first);
  return gap == line.npos ? first : std::min(line.find_first_not_of(' ', gap), line.size());
}

void append_wrapped(std::string& out, std::string_view line, size_t width) {
  const size_t column = line.size() > width ? text_column(line) : line.size();
  std::string current(line.substr(0, column));
  line.remove_prefix(column);
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    if (current.size() > column && current.size() + 1 + end > width) {
      out += current + '\n';
      current.assign(column, ' ');
    }
    if (current.size() > column) current += ' ';
    current += line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  out += current + '\n';
}

}  // namespace

std::string wrapped(std::string_view text, size_t width) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    append_wrapped(out, text.substr(0, end), width);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!out.empty()) out.pop_back();
  return out;
}

}  // namespace trireme
