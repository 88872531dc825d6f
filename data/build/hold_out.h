// Documents held out for validation by a hash of their text, or of their prompt if they have one, so that equal ones stay together.
//
// A document is held out if its hash, a number in [0, 1), is below a limit: the fraction that was asked for. Of few documents none
// or all may be; then other_limit() has the one that holds out a document, or keeps one for training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/build/encode_pipeline.h"

namespace trireme {

struct HoldOut {
  double below = 0;                   // the limit
  double lowest = 1, highest = 0;     // hashes so far
  bool choose(const Passage& first);  // whether the document that begins so is held out

  // After all documents: nullopt if both splits have some, or no limit can do that.
  std::optional<double> other_limit(int64_t trained, int64_t held_out) const;
  // Why there is no such limit. `input` names the text; `by_prompt`: the documents are lines with prompts.
  std::string problem(const std::string& input, int64_t documents, bool by_prompt) const;
};

// Batches of standard input while one split is still empty, since it cannot be read again for another limit.
struct ReadBatches {
  static constexpr int64_t kMostBytes = 256 << 20;  // of text
  std::vector<EncodedBatch> batches{};
  int64_t bytes = 0;
  bool whole = true;  // nothing was dropped

  void keep(const EncodedBatch& batch);
  void drop() { *this = {.batches = {}, .whole = false}; }
};

}  // namespace trireme
