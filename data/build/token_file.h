// Token files of other programs, each read as one stream: llm.c's .bin, Megatron-LM's .bin with its .idx, flat .npy arrays, and
// nanoGPT's .bin. The last has no header. A file that cannot be read is a DataError that names it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace trireme {

// raw16 and raw32: unsigned tokens without a header, as nanoGPT writes them.
enum class TokenFormat { automatic, llmc, megatron, npy, raw16, raw32 };

class TokenFile {
 public:
  // Automatic: .npy by its name, .bin by an .idx beside it, or by the first bytes that llm.c writes.
  explicit TokenFile(const std::string& path, TokenFormat format = TokenFormat::automatic);

  TokenFormat format() const { return format_; }
  int64_t bytes() const { return bytes_; }    // of the file
  int64_t tokens() const { return tokens_; }  // of the stream
  int64_t bytes_read() const { return begin_ + taken_ * width_; }
  bool of_llama3() const { return format_ == TokenFormat::llmc && width_ == 4; }  // which documents begin with 128000
  // Where documents start, if the file says; else only their ends are known, by the token after each.
  const std::vector<int64_t>* document_starts() const { return format_ == TokenFormat::megatron ? &starts_ : nullptr; }
  // The next ones, at most `most`; empty at the end. DataError for a token that is none: below zero, or above 2^31 - 1.
  std::vector<int32_t> next(int64_t most);

 private:
  void open_llmc();
  void open_megatron();
  void open_npy();
  void open_raw();
  void expect_tokens(int64_t tokens, const std::string& said);

  File file_;
  std::string path_;
  TokenFormat format_;
  int64_t bytes_ = 0, begin_ = 0, tokens_ = 0, taken_ = 0;  // begin_: of the first token, in the file
  int64_t width_ = 2;                                       // bytes of a token
  bool is_signed_ = false;
  std::vector<int64_t> starts_;
};

}  // namespace trireme
