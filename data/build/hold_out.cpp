#include "data/build/hold_out.h"

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "base/error.h"
#include "base/philox.h"

namespace trireme {

bool HoldOut::choose(const Passage& first) {
  const double hash = unit(philox64(stream_key(0, "validation"), digest(first.text)));
  lowest = std::min(lowest, hash);
  highest = std::max(highest, hash);
  return hash < below;
}

std::optional<double> HoldOut::other_limit(int64_t trained, int64_t held_out) const {
  if (below == 0 || (trained > 0 && held_out > 0) || lowest >= highest) return std::nullopt;
  return held_out == 0 ? std::nextafter(lowest, 1.0) : highest;
}

std::string HoldOut::problem(const std::string& input, int64_t documents, bool by_prompt) const {
  if (documents == 1)
    return input +
           ": is one document, and documents are held out whole: give several files, or JSON lines with a document each, or name "
           "--validation-input FILE";
  if (lowest >= highest && by_prompt)
    return text(input, ": all ", documents,
                " documents have the same prompt, and those of one prompt are held out together: put some of them in a file of "
                "their own, and name it by --validation-input FILE");
  if (lowest >= highest)
    return text(input, ": all ", documents, " documents have the same text, so none can be held out from the others");
  return text(input, ": all or none of ", documents,
              " documents are held out, and standard input cannot be read again: write it to a file, and name that");
}

void ReadBatches::keep(const EncodedBatch& batch) {
  if (!whole) return;
  for (const Passage& passage : batch.passages) bytes += std::ssize(passage.text);
  if (bytes > kMostBytes) return drop();
  batches.push_back(batch);
}

}  // namespace trireme
