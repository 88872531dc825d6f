#include "data/tokenizer/tokenizer_sentencepiece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "data/tokenizer/sentencepiece_cuts.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/word_cache.h"

namespace trireme {

namespace {

using Kind = SentencePieceModel::Kind;

// The bytes that a piece stands for within a text.
std::string written(const SentencePieceModel::Piece& piece, const SentencePieceModel& model) {
  if (piece.kind == Kind::control) return "";
  if (piece.kind == Kind::unknown) return model.unknown_written;
  if (piece.kind != Kind::byte) return with_spaces(piece.text);
  return {static_cast<char>(byte_of(piece))};
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const SentencePieceModel& model, const std::string& name);

  void encode(std::string_view bytes, std::vector<int32_t>& tokens) const override { encode_parts(bytes, false, tokens); }
  using Tokenizer::encode;
  void encode_rest(std::string_view bytes, std::vector<int32_t>& tokens) const override { encode_parts(bytes, true, tokens); }
  size_t last_cut(std::string_view text, size_t limit) const override;
  std::string_view bytes_of(int32_t token) const override { return bytes_[static_cast<size_t>(token)]; }
  std::string_view bytes_at_start(int32_t token, bool& start) const override;
  std::optional<int32_t> special_token(std::string_view written) const override {
    const auto found = std::ranges::find(controls_, written, &std::pair<std::string, int32_t>::first);
    return found == controls_.end() ? std::nullopt : std::optional(found->second);
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_.size()); }
  int32_t end_of_document() const override { return end_of_document_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  using Processor = sentencepiece::SentencePieceProcessor;
  void load(Processor& processor, const SentencePieceModel& model, bool space_in_front) const;
  void encode_parts(std::string_view text, bool rest, std::vector<int32_t>& tokens) const;
  void encode_words(std::string_view text, bool rest, WordCache& known, std::vector<int32_t>& tokens) const;
  // To tokens, or for a unigram model to the bytes of its normal form.
  void encode_part(std::string_view part, bool rest, std::vector<int32_t>& tokens) const;
  void normalise(const Processor& processor, std::string_view part, std::vector<int32_t>& bytes) const;
  size_t next_cut(std::string_view text, size_t from) const;

  const std::string name_;
  const SentencePieceCuts cuts_;
  const std::optional<Unigram> unigram_;  // or BPE, by the library
  const bool dummy_prefix_, collapse_;
  std::vector<Kind> kinds_;
  std::vector<std::pair<std::string, int32_t>> controls_;  // control symbols and their ids
  Processor spaced_, plain_;                               // with a space put in front of what they are given, and without
  std::vector<std::string> bytes_;
  std::vector<bool> begins_with_space_;  // the piece; not the byte
  int32_t end_of_document_ = -1;
  std::string fingerprint_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> idle_;  // as many as there were threads at once
};

SentencePieceTokenizer::SentencePieceTokenizer(const SentencePieceModel& model, const std::string& name)
    : name_(name),
      cuts_(model, name),
      unigram_(model.unigram ? std::optional<Unigram>(model) : std::nullopt),
      dummy_prefix_(model.dummy_prefix),
      collapse_(model.collapse) {
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.kind == Kind::control && piece.text == model.end_piece) end_of_document_ = vocab_size();
    if (piece.kind == Kind::control) controls_.emplace_back(piece.text, vocab_size());
    kinds_.push_back(piece.kind);
    bytes_.push_back(written(piece, model));
    begins_with_space_.push_back(piece.kind != Kind::control && piece.text.starts_with(SentencePieceModel::kSpace));
  }
  load(spaced_, model, true);
  load(plain_, model, false);
  if (end_of_document_ < 0)
    throw DataError(text(name, ": has no control symbol '", model.end_piece, "' to end documents with: train it with an eos_id"));
  fingerprint_ = "sentencepiece-" + std::to_string(vocab_size()) + "-" + hex(model.digest);
}

void SentencePieceTokenizer::load(Processor& processor, const SentencePieceModel& model, bool space_in_front) const {
  // The last of a repeated field counts: normalizer_spec's add_dummy_prefix.
  const std::string said = model.serialized + std::string{0x1a, 2, 0x18, static_cast<char>(space_in_front)};
  std::string problem;
  try {
    const auto status = processor.LoadFromSerializedProto(said);
    if (!status.ok()) problem = status.error_message();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  if (!problem.empty()) throw DataError(text(name_, ": SentencePiece cannot use it: ", problem));
}

// The last place up to `limit` where text may be cut; 0 where there is none.
size_t SentencePieceTokenizer::last_cut(std::string_view text, size_t limit) const {
  size_t place = std::min(limit, text.size() - 1);
  while (place > 0 && !cuts_.at(text, place)) --place;
  return place;
}

// The first place from `from` on; the end where there is none.
size_t SentencePieceTokenizer::next_cut(std::string_view text, size_t from) const {
  while (from < text.size() && !cuts_.at(text, from)) ++from;
  return std::min(from, text.size());
}

void SentencePieceTokenizer::encode_parts(std::string_view text, bool rest, std::vector<int32_t>& tokens) const {
  if (text.empty()) return;
  std::unique_ptr<WordCache> known;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      known = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (known == nullptr) known = std::make_unique<WordCache>();
  if (unigram_) {
    std::vector<int32_t> bytes;
    encode_words(text, rest, *known, bytes);
    unigram_->encode(std::string(bytes.begin(), bytes.end()), tokens);
  } else {
    encode_words(text, rest, *known, tokens);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(known));
}

// From one place to cut to the next; those after a text's first are the same wherever they stand.
void SentencePieceTokenizer::encode_words(std::string_view text, bool rest, WordCache& known, std::vector<int32_t>& tokens) const {
  for (; !text.empty(); rest = true) {
    const std::string_view word = text.substr(0, next_cut(text, 1));
    text.remove_prefix(word.size());
    const bool keeps = rest && word.size() <= WordCache::kLongest;
    if (const auto found = keeps ? known.find(word) : std::span<const int32_t>(); !found.empty()) {
      tokens.insert(tokens.end(), found.begin(), found.end());
      continue;
    }
    const size_t before = tokens.size();
    encode_part(word, rest, tokens);
    if (keeps && tokens.size() > before) known.keep(word, std::span(tokens).subspan(before));
  }
}

void SentencePieceTokenizer::encode_part(std::string_view part, bool rest, std::vector<int32_t>& tokens) const {
  // If runs of spaces become one and those at the ends none, the run that a rest begins with still becomes one.
  const bool space_in_front = rest ? collapse_ && cuts_.is_space(part.front()) : dummy_prefix_;
  const Processor& processor = space_in_front ? spaced_ : plain_;
  if (unigram_) return normalise(processor, part, tokens);
  std::vector<int> ids;
  const auto status = processor.Encode(part, &ids);
  if (!status.ok()) throw DataError(text(name_, ": SentencePiece cannot encode a text: ", status.error_message()));
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

// The bytes of its normal form, which the library's pieces make together.
void SentencePieceTokenizer::normalise(const Processor& processor, std::string_view part, std::vector<int32_t>& bytes) const {
  const auto found = processor.EncodeAsImmutableProto(part);  // of a failure it says nothing but nothing
  if (found.text() != part) throw DataError(text(name_, ": SentencePiece cannot encode a text of ", part.size(), " bytes"));
  for (const auto& piece : found.pieces()) {
    if (kinds_[piece.id()] == Kind::byte)
      bytes.push_back(static_cast<uint8_t>(bytes_[piece.id()].front()));
    else
      for (const char byte : piece.piece()) bytes.push_back(static_cast<uint8_t>(byte));
  }
}

std::string_view SentencePieceTokenizer::bytes_at_start(int32_t token, bool& start) const {
  std::string_view bytes = bytes_of(token);
  const bool drops = begins_with_space_[static_cast<size_t>(token)] && (dummy_prefix_ || collapse_);
  if (drops) bytes.remove_prefix(1);
  start = bytes.empty() && (!drops || collapse_);
  return bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const SentencePieceModel& model, const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(model, name);
}

}  // namespace trireme
