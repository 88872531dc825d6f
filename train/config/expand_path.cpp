#include "train/config/expand_path.h"

#include <cctype>

#include "parallel/world.h"

namespace trireme {
namespace {

bool is_name_start(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_name_part(char c) { return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool starts_at_home(const std::string& path) { return path == "~" || path.starts_with("~/"); }

void append_variable(ExpandedPath& expanded, const std::string& name) {
  const std::string value = environment(name);
  if (value.empty() && expanded.problem.empty()) expanded.problem = "$" + name + " is not set; write $$ for a dollar sign";
  expanded.path += value;
}

}  // namespace

ExpandedPath expand_path(const std::string& text) {
  ExpandedPath expanded;
  size_t at = 0;
  if (starts_at_home(text)) append_variable(expanded, "HOME"), at = 1;
  for (; at < text.size(); ++at) {
    const char next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (text[at] != '$') {
      expanded.path += text[at];
    } else if (next == '$' || next == '~') {
      expanded.path += text[++at];
    } else if (next == '{') {
      const size_t end = text.find('}', at);
      if (end == std::string::npos || end == at + 2) return {.path = text, .problem = "'${' needs a name and '}'"};
      append_variable(expanded, text.substr(at + 2, end - at - 2));
      at = end;
    } else if (is_name_start(next)) {
      size_t end = at + 1;
      while (end < text.size() && is_name_part(text[end])) ++end;
      append_variable(expanded, text.substr(at + 1, end - at - 1));
      at = end - 1;
    } else {
      expanded.path += '$';
    }
  }
  return expanded;
}

std::string escape_path(const std::string& path) {
  std::string escaped = starts_at_home(path) ? "$" : "";
  for (const char c : path) escaped += c == '$' ? std::string("$$") : std::string(1, c);
  return escaped;
}

}  // namespace trireme
