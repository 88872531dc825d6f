// Prompts of a command line: texts, and files of texts.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// `words` as they are, "-" being standard input, and then the texts of `file` (if it is not ""): of JSON lines their field prompt,
// else each line that is not blank. ConfigError when there are none, or standard input is named twice; DataError for a file that
// cannot be read.
std::vector<std::string> read_prompts(const std::vector<std::string>& words, const std::string& file);

}  // namespace trireme
