#include "train/cli/exit_codes.h"

namespace trireme {

std::string exit_code_lines() {
  std::string lines;
  for (const auto& [code, meaning] : kExitMeanings) {
    const std::string number = std::to_string(code);
    lines += (lines.empty() ? "" : "\n") + std::string(5 - number.size(), ' ') + number + "  " + std::string(meaning);
  }
  return lines;
}

}  // namespace trireme
