// Unicode's normal form C (UAX #15) and classes of characters, by utf8proc. A list adds the letters, marks and numbers that Unicode
// has had since 14.0: however old a system's libraries are, all machines cut a text as Unicode 16.0 does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Writes `text`, composed, into `composed`; false, and nothing is written, where that is the text itself for sure. Bytes that are
// not UTF-8 stay as they are.
bool compose(std::string_view text, std::string& composed);

enum class CharacterClass : uint8_t { other, letter, number, space, newline };  // space: White_Space but for \r and \n
CharacterClass class_of(uint32_t point);
bool is_assigned(uint32_t point);  // in the Unicode of utf8proc

struct UnicodeAddition {
  uint32_t first, last;
  std::string_view category;  // "Lu", "Mn" ...
};
std::span<const UnicodeAddition> unicode_additions();  // by their points
bool holds_additions(std::string_view valid);          // UTF-8 with such characters

// Whether the last character, if `text` ends in one, is a letter or a number of any script.
bool ends_in_letter_or_number(std::string_view text);

}  // namespace trireme
