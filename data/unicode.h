// Unicode's normal form C (UAX #15), by utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Writes `text`, composed, into `composed`; false, and nothing is written, where that is the text itself for sure. Bytes that are
// not UTF-8 stay as they are.
bool compose(std::string_view text, std::string& composed);

}  // namespace trireme
