#include "train/config/keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/utf8.h"
#include "train/config/expand_path.h"

namespace trireme {
namespace {

// Calls f(section, name, field, help, limit) for every key.
template <class F>
void for_each_key(RunConfig& config, F f) {
  auto each_section = [&](const std::string& section, auto& room) {
    auto each_key = [&](const std::string& name, auto& field, const std::string& help, Limit limit = {}) {
      f(section, name, field, help, limit);
    };
    room.visit(each_key);
  };
  config.visit(each_section);
}

std::string printed(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};  // shortest text that reads back as the same double
}

std::string printed(bool value) { return value ? "true" : "false"; }
std::string printed(int64_t value) { return std::to_string(value); }
std::string printed(const std::string& value) { return quoted(value); }

std::string printed(const std::vector<std::string>& values) {
  std::string line;
  for (const std::string& value : values) line += (line.empty() ? "" : ", ") + quoted(value);
  return "[" + line + "]";
}

template <class Number>
std::string printed(const std::vector<Number>& values) {
  std::string line;
  for (const Number value : values) line += (line.empty() ? "" : ", ") + printed(value);
  return "[" + line + "]";
}

std::string printed(const StepRanges& ranges) {
  std::string line;
  for (const StepRange& range : ranges) line += (line.empty() ? "" : ", ") + to_text(range);
  return "[" + line + "]";
}

template <class Enum>
std::string printed(Enum value) {
  return std::string(name_of(value));
}

// Formats the value for reading: escapes variables in paths.
template <class Field>
std::string written(const Field& field, const Limit& limit) {
  if constexpr (std::is_same_v<Field, std::string>) {
    if (limit.is_path) return printed(escape_path(field));
  } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
    std::vector<std::string> paths = field;
    for (std::string& path : paths)
      if (limit.is_path) path = escape_path(path);
    return printed(paths);
  }
  return printed(field);
}

template <class Field>
std::vector<std::string> words_of_field(const Field&) {
  if constexpr (std::is_enum_v<Field>) return {Names<Field>::words.begin(), Names<Field>::words.end()};
  return {};
}

std::string within(const Limit& limit) {
  const bool low = std::isfinite(limit.lowest), high = std::isfinite(limit.highest);
  const auto number = [](double v) {
    return v == std::floor(v) && std::abs(v) < 1e15 ? printed(static_cast<int64_t>(v)) : printed(v);
  };
  if (low && high)
    return (limit.open ? ", above " : ", ") + number(limit.lowest) + (limit.open ? " and at most " : " to ") +
           number(limit.highest);
  if (low) return (limit.open ? ", above " : ", at least ") + number(limit.lowest);
  return high ? ", at most " + number(limit.highest) : "";
}

std::string type_of(bool, const Limit&) { return "true or false"; }
std::string type_of(int64_t, const Limit& limit) { return "a whole number" + within(limit); }
std::string type_of(double, const Limit& limit) { return "a number" + within(limit); }
std::string type_of(const std::string&, const Limit& limit) { return limit.is_path ? "a path" : "a text"; }
std::string type_of(const std::vector<std::string>&, const Limit&) { return "a list of paths"; }
std::string type_of(const std::vector<double>&, const Limit& limit) { return "a list of numbers" + within(limit); }
std::string type_of(const StepRanges&, const Limit&) { return "a list of steps and ranges of steps, such as [7, 100-120]"; }

template <class Enum>
std::string type_of(Enum, const Limit&) {
  const auto& words = Names<Enum>::words;
  std::string line(words[0]);
  for (size_t i = 1; i < words.size(); ++i) line += (i + 1 < words.size() ? ", " : " or ") + std::string(words[i]);
  return line;
}

// Parses the whole text as a decimal number without '+' or leading zeros: some YAML parsers read 010 as 8.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const size_t first = text.starts_with('-') ? 1 : 0;
  if (first >= text.size() || !(text[first] == '.' || (text[first] >= '0' && text[first] <= '9'))) return false;
  if (text[first] == '0' && first + 1 < text.size() && text[first + 1] >= '0' && text[first + 1] <= '9') return false;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  return status == std::errc() && stop == end;
}

// Each parse() returns true if it accepts the value; otherwise it leaves the field unchanged.
bool parse(const Written& value, const Limit&, bool& field) {
  if (value.list || value.quoted || (value.texts[0] != "true" && value.texts[0] != "false")) return false;
  field = value.texts[0] == "true";
  return true;
}

bool parse(const Written& value, const Limit& limit, double& field) {
  double number = 0;
  if (value.list || value.quoted || !parse_number(value.texts[0], number) || !std::isfinite(number) || !inside(number, limit))
    return false;
  field = number;
  return true;
}

// Accepts whole numbers such as 1e6, too, if a double represents them exactly.
bool parse(const Written& value, const Limit& limit, int64_t& field) {
  if (value.list || value.quoted) return false;
  int64_t number = 0;
  if (!parse_number(value.texts[0], number)) {
    constexpr double kExact = 9007199254740992;  // 2^53
    double real = 0;
    if (!parse_number(value.texts[0], real) || real != std::floor(real) || std::abs(real) > kExact) return false;
    number = static_cast<int64_t>(real);
  }
  if (!inside(static_cast<double>(number), limit)) return false;
  field = number;
  return true;
}

// True for well-formed UTF-8 without NUL, as a YAML file can hold.
bool is_text(const std::string& bytes) { return bytes.find('\0') == bytes.npos && utf8_prefix(bytes) == bytes.size(); }

bool parse(const Written& value, const Limit&, std::string& field) {
  if (value.list || !is_text(value.texts[0])) return false;
  field = value.texts[0];
  return true;
}

bool parse(const Written& value, const Limit&, std::vector<std::string>& field) {
  if (!std::ranges::all_of(value.texts, [](const std::string& path) { return !path.empty() && is_text(path); })) return false;
  field = value.texts;
  return true;
}

template <class Number>
bool parse(const Written& value, const Limit& limit, std::vector<Number>& field) {
  std::vector<Number> numbers;
  for (const std::string& text : value.texts)
    if (!parse({.texts = {text}, .list = false, .quoted = value.quoted}, limit, numbers.emplace_back())) return false;
  field = numbers;
  return true;
}

bool parse(const Written& value, const Limit&, StepRanges& field) {
  StepRanges ranges;
  for (const std::string& text : value.texts) {
    const std::optional<StepRange> range = parse_step_range(text);
    if (!range) return false;
    ranges.push_back(*range);
  }
  field = ranges;
  return true;
}

template <class Enum>
bool parse(const Written& value, const Limit&, Enum& field) {
  const auto& words = Names<Enum>::words;
  const auto word = std::ranges::find(words, value.list ? "" : value.texts[0]);
  if (word == words.end()) return false;
  field = static_cast<Enum>(word - words.begin());
  return true;
}

}  // namespace

std::vector<Key> list_keys(const RunConfig& config) {
  RunConfig copy = config;  // visit() hands out references that may be written
  std::vector<Key> keys;
  for_each_key(copy,
               [&](const std::string& section, const std::string& name, auto& field, const std::string& help, const Limit& limit) {
                 keys.push_back({.section = section,
                                 .name = name,
                                 .value = written(field, limit),
                                 .type = type_of(field, limit),
                                 .help = help,
                                 .limit = limit,
                                 .words = words_of_field(field)});
               });
  return keys;
}

std::string set_key(RunConfig& config, const std::string& section, const std::string& name, const Written& value) {
  std::string problem = "is not a key";
  for_each_key(config, [&](const std::string& s, const std::string& n, auto& field, const std::string&, const Limit& limit) {
    if (s == section && n == name) problem = parse(value, limit, field) ? "" : "must be " + type_of(field, limit);
  });
  return problem;
}

std::string shown(const Written& value) {
  std::string line;
  for (const std::string& text : value.texts) line += (line.empty() ? "" : ", ") + text;
  std::string safe;
  for (const char c : line) safe += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (safe.size() > 60) safe = safe.substr(0, start_of_character(safe, 57)) + "...";
  if (value.list) return "[" + safe + "]";
  return value.quoted ? '"' + safe + '"' : safe;
}

std::string quoted(const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (byte < 0x20 || byte == 0x7f)
      out += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    else
      out += c;
  }
  return out + '"';
}

}  // namespace trireme
