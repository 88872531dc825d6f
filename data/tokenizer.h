// Tokenizer: bytes to token ids and back. decode(encode(x)) == x for any bytes, valid UTF-8 or not.
//
// Text is only text: the written form of a special token ("<|endoftext|>") in a document is encoded like any other characters, so
// no document can end another. All functions may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the tokens of `bytes`; never end_of_document().
  virtual void encode(std::string_view bytes, std::vector<int32_t>& tokens) const = 0;
  // The bytes a token stands for; none for special tokens. 0 <= token < vocab_size().
  virtual std::string_view bytes_of(int32_t token) const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t end_of_document() const = 0;
  // A word without spaces that differs whenever encode or decode could; shards carry it.
  virtual std::string fingerprint() const = 0;

  std::vector<int32_t> encode(std::string_view bytes) const {
    std::vector<int32_t> tokens;
    encode(bytes, tokens);
    return tokens;
  }
  // DataError when a token is not in the vocabulary.
  std::string decode(std::span<const int32_t> tokens) const;
};

// 256 bytes and end of document = 256.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// "bytes"; or the path of a tokenizer.json (Hugging Face's format, byte-level BPE), or of tiktoken's ranks, which end in .tiktoken
// and, unless they are published ones, in @ENCODING (tokenizer_bpe.h). DataError when it cannot be used.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path_or_bytes);

}  // namespace trireme
