// Unicode's normal form C (UAX #15) and classes of characters, by utf8proc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// Writes `text`, composed, into `composed`; false, and nothing is written, where that is the text itself for sure. Bytes that are
// not UTF-8 stay as they are.
bool compose(std::string_view text, std::string& composed);

enum class CharacterClass : uint8_t { other, letter, number, space, newline };  // space: White_Space but for \r and \n
CharacterClass class_of(uint32_t point);
bool is_assigned(uint32_t point);  // in the Unicode of this library

// Whether the last character, if `text` ends in one, is a letter or a number of any script.
bool ends_in_letter_or_number(std::string_view text);

}  // namespace trireme
