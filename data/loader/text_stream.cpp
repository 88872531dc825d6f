#include "data/loader/text_stream.h"

#include "base/error.h"
#include "data/build/encode_pipeline.h"
#include "data/documents/list_files.h"

namespace trireme {

TextStream::TextStream(const std::vector<std::string>& inputs, const std::string& field, const Tokenizer& tokenizer,
                       int64_t context, int64_t overlap)
    : cut_{context, overlap, true}, tokens_{tokenizer.end_of_document()} {
  require(0 <= overlap && overlap < context, text("a context of ", context, " with an overlap of ", overlap));
  Documents documents(list_files(inputs), {.field = field, .skip_bad = false, .tokenizer = &tokenizer});
  encode_documents(documents, tokenizer, [&](const EncodedBatch& batch) {
    for (size_t i = 0; i < batch.passages.size(); ++i) {
      const Passage& passage = batch.passages[i];
      if (!passage.problem.empty()) throw DataError(passage.problem);
      if (passage.text.empty()) continue;
      if (passage.starts) starts_.push_back(std::ssize(tokens_));
      tokens_.insert(tokens_.end(), batch.tokens[i].begin(), batch.tokens[i].end());
      if (passage.ends) tokens_.push_back(tokenizer.end_of_document());
      text_bytes_ += std::ssize(passage.text);
    }
  });
  if (text_bytes_ == 0) throw DataError(inputs.front() + ": holds no text");
}

void TextStream::read(int64_t sample, bool document_mask, bool restart_positions, const SampleRow& row) const {
  const SampleWindow window = cut_.window(static_cast<int64_t>(tokens_.size()), sample);
  const auto first = static_cast<size_t>(window.begin);
  const SampleContent content{.stream = std::span(tokens_).subspan(first, static_cast<size_t>(window.tokens + 1)),
                              .starts = starts_,
                              .document_mask = document_mask,
                              .restart_positions = restart_positions};
  fill_sample(cut_, window, content, row);
}

}  // namespace trireme
