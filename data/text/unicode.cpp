#include "data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace trireme {

namespace {

// No character below U+0300 changes or composes with the one before it; these begin with a byte below 0xcc.
bool stays(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0xcc; });
}

void append_decomposed(int32_t point, std::vector<int32_t>& points) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  std::array<int32_t, 32> parts;
  int last = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(point, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()), kOptions, &last);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) throw Error("utf8proc cannot take a character apart");
  points.insert(points.end(), parts.begin(), parts.begin() + count);
}

// utf8proc's own sorting of marks takes the square of their number.
void sort_marks(std::vector<int32_t>& points) {
  const auto class_of = [](int32_t point) { return utf8proc_get_property(point)->combining_class; };
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    while (end < points.size() && class_of(points[end]) > 0) ++end;
    std::stable_sort(points.begin() + static_cast<ptrdiff_t>(i), points.begin() + static_cast<ptrdiff_t>(end),
                     [&](int32_t a, int32_t b) { return class_of(a) < class_of(b); });
    i = end + 1;
  }
}

void append_composed(std::string_view valid, std::string& composed) {
  std::vector<int32_t> points;
  while (!valid.empty()) {
    int32_t point = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                                     static_cast<utf8proc_ssize_t>(valid.size()), &point);
    if (length <= 0) throw Error("utf8proc finds no character");
    append_decomposed(point, points);
    valid.remove_prefix(static_cast<size_t>(length));
  }
  sort_marks(points);
  const auto count = static_cast<utf8proc_ssize_t>(points.size());
  points.push_back(0);  // reencode writes bytes over them, and one more
  const utf8proc_ssize_t length =
      utf8proc_reencode(points.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (length < 0) throw Error(std::string("utf8proc: ") + utf8proc_errmsg(length));
  composed.append(reinterpret_cast<const char*>(points.data()), static_cast<size_t>(length));
}

}  // namespace

bool compose(std::string_view text, std::string& composed) {
  if (stays(text)) return false;
  composed.clear();
  while (!text.empty()) {
    const size_t valid = utf8_prefix(text);
    if (valid > 0) append_composed(text.substr(0, valid), composed);
    text.remove_prefix(valid);
    const size_t other = text.empty() ? 0 : 1;
    composed.append(text.substr(0, other));
    text.remove_prefix(other);
  }
  return true;
}

namespace {

CharacterClass computed_class(uint32_t point) {
  if (point == '\r' || point == '\n') return CharacterClass::newline;
  const bool space = (9 <= point && point <= 13) || point == ' ' || point == 0x85 || point == 0xa0 || point == 0x1680 ||
                     (0x2000 <= point && point <= 0x200a) || point == 0x2028 || point == 0x2029 || point == 0x202f ||
                     point == 0x205f || point == 0x3000;
  if (space) return CharacterClass::space;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(point));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return CharacterClass::letter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return CharacterClass::number;
  return CharacterClass::other;
}

}  // namespace

CharacterClass class_of(uint32_t point) {
  static const std::vector<CharacterClass> all = [] {  // 1.1 MB, made in some milliseconds by the first text that needs it
    std::vector<CharacterClass> classes(0x110000);
    for (uint32_t i = 0; i < classes.size(); ++i) classes[i] = computed_class(i);
    for (const UnicodeAddition& added : unicode_additions()) {
      if (added.category[0] == 'M') continue;
      const CharacterClass kind = added.category[0] == 'L' ? CharacterClass::letter : CharacterClass::number;
      std::fill(classes.begin() + added.first, classes.begin() + added.last + 1, kind);
    }
    return classes;
  }();
  return point < all.size() ? all[point] : CharacterClass::other;
}

bool is_assigned(uint32_t point) { return utf8proc_category(static_cast<utf8proc_int32_t>(point)) != UTF8PROC_CATEGORY_CN; }

bool holds_additions(std::string_view valid) {
  static const std::vector<bool> added = [] {
    std::vector<bool> points(0x110000);
    for (const UnicodeAddition& of : unicode_additions()) std::fill(points.begin() + of.first, points.begin() + of.last + 1, true);
    return points;
  }();
  for (size_t i = 0; i < valid.size(); ++i) {
    if (static_cast<uint8_t>(valid[i]) < 0xe0) continue;  // all are above U+07ff
    int32_t point = 0;
    utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()) + i, static_cast<utf8proc_ssize_t>(valid.size() - i),
                     &point);
    if (point > 0 && added[static_cast<size_t>(point)]) return true;
  }
  return false;
}

bool ends_in_letter_or_number(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    --begin;
    if ((static_cast<uint8_t>(text[begin]) & 0xc0) != 0x80) break;
  }
  const std::string_view last = text.substr(begin);
  if (last.empty() || utf8_character(last) != last.size()) return false;
  int32_t point = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(last.data()), static_cast<utf8proc_ssize_t>(last.size()), &point);
  const CharacterClass kind = class_of(static_cast<uint32_t>(point));
  return kind == CharacterClass::letter || kind == CharacterClass::number;
}

}  // namespace trireme
