// The published patterns, by hand: the same words as the regular expressions (tokenizer_words.h) cut, several times as fast.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// Bytes of the word that `text`, UTF-8 and not empty, begins with.
using WordScanner = size_t (*)(std::string_view text);

// The scanner of a pattern; nullptr: there is none by hand.
WordScanner scanner_of(const std::string& pattern);

}  // namespace trireme
