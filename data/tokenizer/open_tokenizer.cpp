// The functions of tokenizer.h: what all tokenizers have, and which one a path or a name is.

#include "base/confined.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_sentencepiece.h"
#include "data/tokenizer/tokenizer_words.h"

namespace trireme {

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }
  void encode(std::string_view bytes, std::vector<int32_t>& tokens) const override {
    tokens.reserve(tokens.size() + bytes.size());
    for (const char c : bytes) tokens.push_back(static_cast<uint8_t>(c));
  }
  std::string_view bytes_of(int32_t token) const override {
    return token == kEndOfDocument ? std::string_view() : std::string_view(bytes_).substr(static_cast<size_t>(token), 1);
  }
  int32_t vocab_size() const override { return kEndOfDocument + 1; }
  int32_t end_of_document() const override { return kEndOfDocument; }
  std::string fingerprint() const override { return "bytes"; }

 private:
  static constexpr int32_t kEndOfDocument = 256;
  std::string bytes_ = std::string(256, '\0');
};

}  // namespace

size_t Tokenizer::last_cut(std::string_view text, size_t limit) const { return last_cut_between_words(text, limit); }

std::optional<int32_t> Tokenizer::special_token(std::string_view) const { return std::nullopt; }

std::string_view Tokenizer::bytes_at_start(int32_t token, bool& start) const {
  start = false;
  return bytes_of(token);
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string bytes;
  TextOfTokens words(*this);
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_size()) throw DataError(text("token ", token, " is not in the vocabulary of ", vocab_size()));
    bytes += words.next(token);
  }
  return bytes;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path_or_bytes) {
  const auto [kind, path, encoding] = parse_tokenizer_name(path_or_bytes);
  switch (kind) {
    case TokenizerKind::bytes:
      return make_byte_tokenizer();
    case TokenizerKind::ranks:
      return make_bpe_tokenizer(read_tiktoken(path, encoding));
    case TokenizerKind::sentencepiece: {
      const SentencePieceModel model = read_sentencepiece_model(path);
      rehearse(path, [&] { make_sentencepiece_tokenizer(model, path); });
      return make_sentencepiece_tokenizer(model, path);
    }
    case TokenizerKind::vocabulary:
      return make_bpe_tokenizer(read_vocabulary(path));
    case TokenizerKind::tokenizer_json:
      break;
  }
  return make_bpe_tokenizer(read_tokenizer_json(path));
}

}  // namespace trireme
