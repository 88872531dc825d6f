// Best-fit packing: documents into rows of T tokens, so that no document that fits in a row is cut. The algorithm is best-fit
// decreasing, as in Ding et al., "Fewer Truncations Improve Language Modeling" (ICML 2024).
//
// A document longer than a row is cut into pieces of T tokens and one of the rest; each piece is from then on a document of its
// own. The pieces go, the longest first, each into the fullest row that has room for it, or a new one. What is left of a row is
// filled with the tokenizer's end_of_document. The first token of a piece is not a target, as nothing in front of it is of its
// document; nor is the filling. The rows stand in the order of their first pieces, and pieces in a row in their own order, so that
// the order of the documents is kept as far as it can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

// A stretch of documents, or the rows that they are packed in.
struct TokenStretch {
  std::vector<int32_t> tokens;
  std::vector<int64_t> starts;   // of documents, or of pieces; the first is 0
  std::vector<uint8_t> trained;  // of each token 1, or 0 if it is not a target; empty: all are
};

// For pieces of 1 to `row` tokens the row that each goes into.
struct Fit {
  std::vector<int64_t> row_of;  // by piece
  int64_t rows = 0;
};
Fit best_fit(std::span<const int64_t> lengths, int64_t row);

struct Packed {
  TokenStretch rows;
  std::vector<size_t> documents;  // of each piece, in the order of its start
};
Packed pack(const TokenStretch& documents, int64_t row, int32_t filling);

// How many documents do not lie in one row each where the stretch is cut every `row` tokens. `starts` as in a shard of `tokens`.
int64_t count_cut(std::span<const int64_t> starts, int64_t tokens, int64_t row);

}  // namespace trireme
