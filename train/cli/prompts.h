// Prompts of a command line: texts, and files of texts.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct Prompt {
  std::string text;
  std::string name;  // for messages: "--prompt", or FILE:LINE
};

// `words` as they are, "-" being standard input, and then the texts of `file` (if it is not ""), unpacked by its name: of JSON
// lines their field prompt, else each line that is not blank. ConfigError when there are none, or standard input is named twice;
// DataError for a file that cannot be read, or is not of text.
std::vector<Prompt> read_prompts(const std::vector<std::string>& words, const std::string& file);

}  // namespace trireme
