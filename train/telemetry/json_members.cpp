#include "train/telemetry/json_members.h"

#include <charconv>
#include <limits>

namespace trireme {
namespace {

bool is_json_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Length of the string that `text` begins with, both quotes included; 0 if it does not end.
size_t string_length(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return 0;
}

}  // namespace

JsonMembers::JsonMembers(std::string_view object) : rest_(object) {
  if (!take('{')) rest_ = {};
}

void JsonMembers::skip_blanks() {
  size_t at = 0;
  while (at < rest_.size() && is_json_blank(rest_[at])) ++at;
  rest_.remove_prefix(at);
}

bool JsonMembers::take(char c) {
  skip_blanks();
  if (!rest_.starts_with(c)) return false;
  rest_.remove_prefix(1);
  return true;
}

std::string_view JsonMembers::quoted() {
  skip_blanks();
  const size_t length = rest_.starts_with('"') ? string_length(rest_) : 0;
  const std::string_view found = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return found;
}

std::string_view JsonMembers::nested() {
  int depth = 0;
  for (size_t i = 0; i < rest_.size(); ++i) {
    const char c = rest_[i];
    if (c == '"') {
      const size_t length = string_length(rest_.substr(i));
      if (length == 0) return {};
      i += length - 1;
    }
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) {
      const std::string_view found = rest_.substr(0, i + 1);
      rest_.remove_prefix(i + 1);
      return found;
    }
  }
  return {};
}

std::string_view JsonMembers::scalar() {
  size_t length = 0;
  while (length < rest_.size() && rest_[length] != ',' && rest_[length] != '}' && rest_[length] != ']' &&
         !is_json_blank(rest_[length]))
    ++length;
  const std::string_view found = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return found;
}

bool JsonMembers::next() {
  if (take('}')) {
    skip_blanks();
    whole_ = rest_.empty();
    rest_ = {};
    return false;
  }
  if (!first_ && !take(',')) return false;
  first_ = false;
  const std::string_view name = quoted();
  if (name.empty() || !take(':')) return rest_ = {}, false;
  skip_blanks();
  const char begin = rest_.empty() ? ' ' : rest_.front();
  value_ = begin == '"' ? quoted() : begin == '{' || begin == '[' ? nested() : scalar();
  name_ = name.substr(1, name.size() - 2);
  if (value_.empty()) rest_ = {};
  return !value_.empty();
}

double number_of(std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool fine = error == std::errc() && end == value.data() + value.size();
  return fine ? number : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace trireme
