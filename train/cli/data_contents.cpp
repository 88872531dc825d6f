#include "train/cli/data_contents.h"

#include <algorithm>

#include "base/error.h"
#include "base/number_format.h"
#include "train/telemetry/log.h"

namespace trireme {

std::string data_contents(int64_t tokens, int64_t documents, int64_t text_bytes) {
  const double per_token = static_cast<double>(text_bytes) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return text(tokens, " tokens, ", documents, " documents, ", human_bytes(static_cast<double>(text_bytes)), " of text, ",
              fixed(per_token, 2), " bytes per token");
}

std::string percent(int64_t part, int64_t whole) {
  return fixed(100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1)), 2) + " %";
}

void say_split(const std::string& name, const SplitSummary& split) {
  if (split.shards.empty()) return;
  const std::string last = split.shards.size() > 1 ? " to " + split.shards.back() : "";
  say(name + ": " + data_contents(split.tokens, split.documents, split.text_bytes) + ": " + split.shards.front() + last);
  if (split.trained_tokens < split.tokens)
    say(std::string(text(name, ": ", split.trained_tokens, " tokens are targets, ", percent(split.trained_tokens, split.tokens))));
  if (split.rows > 0)
    say(std::string(text(name, ": packed in ", split.rows, " rows, of which ", percent(split.filling, split.tokens),
                         " is filling; ", split.cut_documents, " documents are longer than a row and cut")));
}

}  // namespace trireme
