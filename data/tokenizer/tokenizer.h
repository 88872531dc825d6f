// Tokenizer: bytes to token ids and back. decode(encode(x)) == x for any bytes, valid UTF-8 or not, but for those that bring
// text into another form first (NFC, or what a SentencePiece model says: tokenizer_sentencepiece.h).
//
// Text is only text: the written form of a special token ("<|endoftext|>") in a document is encoded like any other characters, so
// no document can end another. All functions may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  // The same where a part of the text was encoded before, up to where cut() says.
  virtual void encode_rest(std::string_view bytes, std::vector<int32_t>& tokens) const { encode(bytes, tokens); }
  // Place at which a text of more than `limit` bytes can be cut so that its parts have the tokens of the whole: the last such place
  // within `limit` bytes; 0: there is none.
  virtual size_t last_cut(std::string_view text, size_t limit) const;
  // The bytes a token stands for; none for special tokens. 0 <= token < vocab_size().
  virtual std::string_view bytes_of(int32_t token) const = 0;
  // The same at the start of a text, without a space that is not of the text; `start`: whether the next token is there, too.
  virtual std::string_view bytes_at_start(int32_t token, bool& start) const;
  // The special token that is written so, such as <|im_start|>; encode never makes it. nullopt: there is none of this name.
  virtual std::optional<int32_t> special_token(std::string_view written) const;
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

// The bytes of a text's tokens, one after the other from its start.
class TextOfTokens {
 public:
  explicit TextOfTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string_view next(int32_t token) { return start_ ? tokenizer_->bytes_at_start(token, start_) : tokenizer_->bytes_of(token); }

 private:
  const Tokenizer* tokenizer_;
  bool start_ = true;
};

// 256 bytes and end of document = 256.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// "bytes"; or the path of a tokenizer.json (Hugging Face's format, byte-level BPE), of a vocab.json with merges.txt beside it, of
// SentencePiece's .model, or of tiktoken's ranks, which end in .tiktoken or .model and, unless they are published ones, in
// @ENCODING (tokenizer_bpe.h, tokenizer_files.h, tokenizer_sentencepiece.h). DataError when it cannot be used.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path_or_bytes);

}  // namespace trireme
