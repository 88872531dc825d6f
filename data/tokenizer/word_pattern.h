// Spelling of a pattern, as tokenizer files write it, for PCRE2.
#pragma once

#include <string>

namespace trireme {

// The pattern as PCRE2 is to read it; `additions`: with the characters that its Unicode may lack. DataError for what libraries read
// differently.
std::string spelled_out(const std::string& pattern, bool additions);

// The beginning of a pattern, for messages.
std::string shown_pattern(const std::string& pattern);

}  // namespace trireme
