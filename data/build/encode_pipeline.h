// Reads and encodes documents with all threads, and passes them on in their order. Each thread does what is due next, so that none
// waits while there is work, and the memory is bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/documents/documents.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct EncodedBatch {
  std::vector<Passage> passages;             // parsed; of a problem, which may be the tokenizer's, or without text, some
  std::vector<std::vector<int32_t>> tokens;  // of each
  // 1 or 0 for each one's tokens and the end_of_document after them: targets or not; empty: all are.
  std::vector<std::vector<uint8_t>> trained;
  Documents::Position end;  // after it
  int64_t bytes_read;       // of the files, up to there
};

constexpr int64_t kBatchBytes = 4 << 20;

// From where the documents stand to their end. A batch holds passages of about batch_bytes of text. take() is called for one batch
// at a time. The first failure is thrown when all threads have stopped.
void encode_documents(Documents& documents, const Tokenizer& tokenizer, const std::function<void(const EncodedBatch&)>& take,
                      int64_t batch_bytes = kBatchBytes);

}  // namespace trireme
