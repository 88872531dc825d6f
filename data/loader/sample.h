// Samples: rows of T inputs and their T targets, cut from a stream of tokens, whether it lies in a shard or in memory.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// Memory that a sample is written to: T places of each.
struct SampleRow {
  int32_t* tokens;
  int32_t* targets;         // -1: none
  int32_t* positions;       // from the row's start, or from a document's; null: not wanted
  int32_t* document_start;  // index in the row of the first token of the place's document; null: not wanted
};

// A sample's part of a stream.
struct SampleWindow {
  int64_t begin, tokens;             // first input, inputs
  int64_t context_only, predicting;  // inputs from the former up to but not the latter have a target, the token after them
};

// How a stream is cut: samples begin every context - overlap tokens, and the first `overlap` tokens of each but the first are
// context only. What is left over at the end is a shorter sample if `keep_tail`, else it is dropped.
struct SampleCut {
  int64_t context, overlap = 0;  // 0 <= overlap < context
  bool keep_tail = false;

  int64_t stride() const { return context - overlap; }
  int64_t samples(int64_t tokens) const;  // of a stream of so many
  SampleWindow window(int64_t tokens, int64_t sample) const;
};

// Content of rows, and the way they are filled. See Corpus::read for the two flags.
struct SampleContent {
  std::span<const int32_t> stream;  // a window's inputs and their targets
  std::span<const int64_t> starts;  // of documents, rising: at least all that begin in the window after its first token
  bool document_mask, restart_positions;
};

// Fills a row of T places with a window; after what the stream has for it places are padded (tokens 0, targets -1).
void fill_sample(const SampleCut& cut, const SampleWindow& window, const SampleContent& content, const SampleRow& row);

}  // namespace trireme
