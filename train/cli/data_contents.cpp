#include "train/cli/data_contents.h"

#include <algorithm>

#include "base/error.h"
#include "base/number_format.h"

namespace trireme {

std::string data_contents(int64_t tokens, int64_t documents, int64_t text_bytes) {
  const double per_token = static_cast<double>(text_bytes) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return text(tokens, " tokens, ", documents, " documents, ", human_bytes(static_cast<double>(text_bytes)), " of text, ",
              fixed(per_token, 2), " bytes per token");
}

std::string percent(int64_t part, int64_t whole) {
  return fixed(100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1)), 2) + " %";
}

}  // namespace trireme
