#include "base/json_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/printable.h"
#include "base/utf8.h"

namespace trireme {

namespace {

constexpr int64_t kLongestNumber = 1000;  // characters
constexpr size_t kShown = 60;             // of a name or number in a message

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void append_point(std::string& out, uint32_t point) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | point >> 6), put(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12), put(0x80 | (point >> 6 & 0x3f)), put(0x80 | (point & 0x3f));
  } else {
    put(0xf0 | point >> 18), put(0x80 | (point >> 12 & 0x3f)), put(0x80 | (point >> 6 & 0x3f)), put(0x80 | (point & 0x3f));
  }
}

std::string more_than(int64_t limit, const char* what) { return "has more than " + std::to_string(limit) + " " + what; }

}  // namespace

JsonParser::JsonParser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {
  if (std::ssize(text) > limits.bytes) fail_at(static_cast<size_t>(limits.bytes), more_than(limits.bytes, "bytes"));
  if (text.starts_with("\xef\xbb\xbf")) at_ = 3;
}

void JsonParser::fail(const std::string& what) const { fail_at(at_, what); }

void JsonParser::fail_at(size_t at, const std::string& what) const {
  const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(at, text_.size())), '\n');
  throw JsonError("is not JSON: byte " + std::to_string(at + 1) + (line > 1 ? " (line " + std::to_string(line) + ")" : "") + ": " +
                  what);
}

void JsonParser::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

bool JsonParser::take(char c) {
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonParser::count() {
  if (++values_ > limits_.values) fail(more_than(limits_.values, "names and values"));
}

Json JsonParser::parse() {
  read_value();
  while (!open_.empty()) {
    const bool object = open_.back()->is_object();
    skip_space();
    if (take(object ? '}' : ']')) {
      open_.pop_back();
    } else {
      if (!first_ && !take(',')) fail(object ? "',' or '}' is expected" : "',' or ']' is expected");
      if (object) read_name();
      read_value();
      if (first_) continue;
    }
    first_ = false;
    hand_over();
  }
  skip_space();
  if (at_ != text_.size()) fail("the text should end here");
  return std::move(root_);
}

void JsonParser::parse_members(const std::function<void(const std::string&, Json)>& take) {
  take_ = &take;
  skip_space();
  if (peek() != '{') fail("an object is expected");
  parse();
}

// Gives away the member of the root that is complete.
void JsonParser::hand_over() {
  if (take_ == nullptr || open_.size() != 1 || root_.empty()) return;
  auto& [name, value] = *root_.members().begin();
  (*take_)(name, std::move(value));
  root_.members().clear();
  values_ = 0;
}

// A scalar, or the beginning of a container: first_ then holds.
void JsonParser::read_value() {
  first_ = false;
  skip_space();
  count();
  const char c = peek();
  if (c == '{' || c == '[') {
    if (std::ssize(open_) >= limits_.depth) fail("nested more than " + std::to_string(limits_.depth) + " deep");
    ++at_;
    Json& container = place(c == '{' ? Json::object() : Json::array());
    open_.push_back(&container);
    first_ = true;
  } else {
    place(c == '"' ? Json(read_string()) : c == '-' || is_digit(c) ? read_number() : read_word());
  }
}

Json& JsonParser::place(Json value) {
  if (open_.empty()) return root_ = std::move(value);
  Json& parent = *open_.back();
  if (parent.is_object()) return parent[name_] = std::move(value);
  parent.push_back(std::move(value));
  return parent.items().back();
}

void JsonParser::read_name() {
  skip_space();
  const size_t begin = at_;
  if (peek() != '"') fail("a name in quotes is expected");
  count();
  name_ = read_string();
  if (limits_.unique_names && open_.back()->contains(name_)) {
    const std::string shown = printable(name_.substr(0, kShown));
    throw JsonError("repeats the name '" + shown + "' at byte " + std::to_string(begin + 1));
  }
  skip_space();
  if (!take(':')) fail("':' is expected");
}

Json JsonParser::read_word() {
  for (const auto& [word, value] : {std::pair("true", 1), std::pair("false", 0), std::pair("null", -1)})
    if (text_.substr(at_).starts_with(word)) {
      at_ += std::string_view(word).size();
      return value < 0 ? Json() : Json(value == 1);
    }
  if (at_ == text_.size()) fail("the text ends where a value is expected");
  fail("a value is expected, not '" + printable(text_.substr(at_, std::max<size_t>(utf8_character(text_.substr(at_)), 1))) + "'");
}

Json JsonParser::read_number() {
  const size_t begin = at_;
  bool real = false;
  const auto digits = [&] {
    if (!is_digit(peek())) fail("a digit is expected");
    while (is_digit(peek())) ++at_;
  };
  take('-');
  if (!take('0')) digits();
  if (take('.')) real = true, digits();
  if (take('e') || take('E')) {
    real = true;
    if (!take('+')) take('-');
    digits();
  }
  const std::string_view written = text_.substr(begin, at_ - begin);
  if (std::ssize(written) > kLongestNumber) fail_at(begin, "a number " + more_than(kLongestNumber, "characters"));
  const auto as = [&](auto value) -> std::optional<Json> {
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
    return error == std::errc() && end == written.data() + written.size() ? std::optional<Json>(value) : std::nullopt;
  };
  if (!real)
    if (std::optional<Json> whole = written[0] == '-' ? as(int64_t{}) : as(uint64_t{})) return std::move(*whole);
  if (std::optional<Json> value = as(double{})) return std::move(*value);
  const double value = std::strtod(std::string(written).c_str(), nullptr);  // close to zero, or too large
  if (!std::isfinite(value)) fail_at(begin, "the number " + std::string(written.substr(0, kShown)) + " is too large");
  return value;
}

std::string JsonParser::read_string() {
  const size_t begin = at_++;
  std::string out;
  while (true) {
    const size_t from = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<uint8_t>(text_[at_]) >= ' ') ++at_;
    const std::string_view plain = text_.substr(from, at_ - from);
    if (const size_t valid = utf8_prefix(plain); valid != plain.size()) fail_at(from + valid, "a string is not UTF-8");
    out += plain;
    if (std::ssize(out) > limits_.string) fail_at(begin, "a name or string " + more_than(limits_.string, "bytes"));
    if (take('"')) return out;
    if (at_ == text_.size()) fail("the text ends in a string");
    if (!take('\\')) fail("a string holds a control character that is not escaped");
    read_escape(out);
  }
}

void JsonParser::read_escape(std::string& out) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const char c = peek();
  if (const size_t which = kEscapes.find(c); c != '\0' && which != kEscapes.npos) {
    out += kMeanings[which];
    ++at_;
    return;
  }
  if (!take('u')) fail("an escape is expected after '\\'");
  uint32_t point = read_hex();
  if (point >= 0xd800 && point < 0xdc00 && take('\\') && take('u')) {
    const uint32_t low = read_hex();
    if (low < 0xdc00 || low > 0xdfff) fail("the other half of a surrogate pair is expected");
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  }
  if (point >= 0xd800 && point < 0xe000) fail("half of a surrogate pair stands alone");
  append_point(out, point);
}

uint32_t JsonParser::read_hex() {
  uint32_t value = 0;
  const std::string_view four = text_.substr(std::min(at_, text_.size()), 4);
  const auto [end, error] = std::from_chars(four.data(), four.data() + four.size(), value, 16);
  if (error != std::errc() || end != four.data() + 4) fail("four hexadecimal digits are expected");
  at_ += 4;
  return value;
}

}  // namespace trireme
