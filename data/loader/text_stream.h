// TextStream: the tokens of text, in memory, as a shard of the same documents would hold them, seen as samples.
//
// Documents follow each other, an end_of_document after each and one more in front of the first, so that every token of the text
// is a target exactly once. Text takes 4 bytes of memory a token.
#pragma once

#include <string>
#include <vector>

#include "data/loader/sample.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

class TextStream {
 public:
  // `inputs` as list_files takes them; `field`: of JSON lines. DataError for what cannot be read, or no text at all.
  TextStream(const std::vector<std::string>& inputs, const std::string& field, const Tokenizer& tokenizer, int64_t context,
             int64_t overlap);

  int64_t samples() const { return cut_.samples(static_cast<int64_t>(tokens_.size())); }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()) - 1; }  // targets
  int64_t text_bytes() const { return text_bytes_; }
  double tokens_per_byte() const { return static_cast<double>(tokens()) / static_cast<double>(text_bytes_ > 0 ? text_bytes_ : 1); }
  void read(int64_t sample, bool document_mask, bool restart_positions, const SampleRow& row) const;  // as Corpus::read

 private:
  SampleCut cut_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> starts_;
  int64_t text_bytes_ = 0;
};

}  // namespace trireme
