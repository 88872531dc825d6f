#include "data/loader/sample.h"

#include <algorithm>
#include <numeric>

namespace trireme {

int64_t SampleCut::samples(int64_t tokens) const {
  const int64_t targets = std::max<int64_t>(tokens - 1, 0);
  const int64_t whole = std::max<int64_t>(targets - overlap, 0) / stride();
  const bool tail = keep_tail && targets > (whole > 0 ? whole * stride() + overlap : 0);
  return whole + (tail ? 1 : 0);
}

SampleWindow SampleCut::window(int64_t tokens, int64_t sample) const {
  const int64_t begin = sample * stride();
  const int64_t inputs = std::min(context, tokens - 1 - begin);
  return {begin, inputs, sample > 0 ? overlap : 0, inputs};
}

void fill_sample(const SampleCut& cut, const SampleWindow& window, const SampleContent& content, const SampleRow& row) {
  const int64_t context = cut.context;
  std::copy_n(content.stream.begin(), window.tokens, row.tokens);
  std::copy_n(content.stream.begin() + 1, window.predicting, row.targets);
  std::fill(row.tokens + window.tokens, row.tokens + context, 0);
  std::fill(row.targets + window.predicting, row.targets + context, -1);
  std::fill_n(row.targets, window.context_only, -1);

  if (row.positions == nullptr && row.document_start == nullptr) return;
  auto next = std::upper_bound(content.starts.begin(), content.starts.end(), window.begin);
  for (int64_t start = 0, end = 0; start < context; start = end) {  // of one document after the other, in the row
    end = next == content.starts.end() ? context : std::min(*next++ - window.begin, context);
    if (row.document_start != nullptr)
      std::fill(row.document_start + start, row.document_start + end, static_cast<int32_t>(content.document_mask ? start : 0));
    if (row.positions != nullptr)
      std::iota(row.positions + start, row.positions + end, static_cast<int32_t>(content.restart_positions ? 0 : start));
  }
}

}  // namespace trireme
