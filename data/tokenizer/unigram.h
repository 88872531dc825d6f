// SentencePiece's unigram models: a text is cut into the pieces whose scores have the largest sum, found by Viterbi's algorithm.
// Scores are logarithms of probabilities (Kudo, "Subword Regularization", ACL 2018).
//
// Many texts have several cuts of one largest sum: "....", of "..." and ".". Which is taken hangs on how sums are rounded; here as
// in SentencePiece 0.2.3: to float, from the text's beginning, or from the last place where the sum had fallen below -100,000; a
// symbol of the user's scores 0. (Older ones, Debian 12's 0.1.97 among them, round twice, and cut such texts otherwise.)
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer/pair_map.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace trireme {

class Unigram {
 public:
  explicit Unigram(const SentencePieceModel& model);

  // Appends the ids of a text in its normal form: UTF-8, with kSpace for spaces. What no piece holds is unknown, once for each run,
  // or its bytes where the model falls back to them.
  void encode(std::string_view normal, std::vector<int32_t>& tokens) const;

 private:
  struct Ending {
    float score = 0;
    int64_t begin = -1;  // of the last piece
    int32_t piece = -1;
  };
  void add(std::string_view piece, int32_t id);

  PairMap next_;                // (node, byte) -> node, of a tree of the pieces' bytes; the root is 0
  std::vector<int32_t> ends_;   // by node: the piece that ends there, or -1
  std::vector<float> scores_;   // by piece
  std::vector<int32_t> bytes_;  // ids, by byte; none: no fallback
  int32_t unknown_ = 0;
  float unknown_score_ = 0;
  int64_t longest_ = 0;  // piece, in bytes
};

}  // namespace trireme
