#include "train/telemetry/exposition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace trireme {
namespace {

// Well-formed UTF-8 in quotes.
std::string label_value(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t length = utf8_character(text);
    const char c = text.front();
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += length == 0 ? "?" : c == '\n' ? " " : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return escaped;
}

}  // namespace

std::string label(std::string_view name, const std::string& value) { return std::string(name) + "=\"" + label_value(value) + "\""; }

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 40> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

Exposition& Exposition::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = "trireme_" + std::string(name);
  text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " + std::string(type) + "\n";
  return *this;
}

Exposition& Exposition::sample(double value, const std::string& labels, std::string_view suffix) {
  text_ += name_ + std::string(suffix) + "{" + run_ + (labels.empty() ? "" : ",") + labels + "} " + prometheus_number(value) + "\n";
  return *this;
}

}  // namespace trireme
