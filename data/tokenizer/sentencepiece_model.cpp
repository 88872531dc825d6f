#include "data/tokenizer/sentencepiece_model.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/confined.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_files.h"

namespace trireme {

namespace {

constexpr int64_t kLargestModel = 64 << 20;

// Protocol buffers: numbered fields, each a number or bytes.
struct Field {
  uint64_t number, value;  // value: of numbers, those of 4 bytes as their bits
  std::string_view bytes, whole;
  enum class Wire { number = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 } wire;
};

class Fields {
 public:
  Fields(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  // False at the end.
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::string_view from = rest_;
    const uint64_t tag = varint();
    field = {.number = tag >> 3, .value = 0, .bytes = {}, .whole = {}, .wire = static_cast<Field::Wire>(tag & 7)};
    switch (field.wire) {
      case Field::Wire::number:
        field.value = varint();
        break;
      case Field::Wire::eight_bytes:
        take(8);
        break;
      case Field::Wire::four_bytes: {
        uint32_t bits = 0;
        std::memcpy(&bits, take(4).data(), 4);
        field.value = bits;
        break;
      }
      case Field::Wire::bytes:
        field.bytes = take(varint());
        break;
      default:
        damaged();
    }
    if (field.number == 0) damaged();
    field.whole = from.substr(0, from.size() - rest_.size());
    return true;
  }

 private:
  [[noreturn]] void damaged() const { throw DataError(name_ + ": is not a SentencePiece model, or a damaged one"); }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) damaged();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1).front());
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    damaged();
  }

  std::string_view rest_;
  const std::string& name_;
};

// A field as what it must be; DataError for another kind of it.
class Meaning {
 public:
  Meaning(const Field& field, const std::string& name) : field_(field), name_(name) {}
  std::string text() const { return std::string(must(Field::Wire::bytes).bytes); }
  std::string_view message() const { return must(Field::Wire::bytes).bytes; }
  uint64_t number() const { return must(Field::Wire::number).value; }
  bool truth() const { return number() != 0; }
  float real() const { return std::bit_cast<float>(static_cast<uint32_t>(must(Field::Wire::four_bytes).value)); }

 private:
  const Field& must(Field::Wire wire) const {
    if (field_.wire != wire)
      throw DataError(trireme::text(name_, ": is not a SentencePiece model: its field ", field_.number, " is of another kind"));
    return field_;
  }
  const Field& field_;
  const std::string& name_;
};

// The byte that "<0x0A>" names.
std::optional<uint8_t> parse_byte(const std::string& piece) {
  unsigned value = 256;
  if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (value > 255) return std::nullopt;
  return static_cast<uint8_t>(value);
}

SentencePieceModel::Piece parse_piece(std::string_view message, size_t id, const std::string& name) {
  SentencePieceModel::Piece piece;
  uint64_t kind = 1;
  float score = 0;
  Fields fields(message, name);
  for (Field field; fields.next(field);) {
    const Meaning meaning(field, name);
    if (field.number == 1) piece.text = meaning.text();
    if (field.number == 2) score = meaning.real();
    if (field.number == 3) kind = meaning.number();
  }
  if (piece.text.empty() || piece.text.find('\0') != std::string::npos || utf8_prefix(piece.text) != piece.text.size())
    throw DataError(text(name, ": piece ", id, " is not text"));
  if (!std::isfinite(score)) throw DataError(text(name, ": piece ", id, " has a score of ", score));
  piece.score = score;
  if (kind < 1 || kind > 6) throw DataError(text(name, ": piece ", id, " is of kind ", kind, ", which is not known"));
  piece.kind = static_cast<SentencePieceModel::Kind>(kind);
  if (piece.kind == SentencePieceModel::Kind::byte && !parse_byte(piece.text))
    throw DataError(text(name, ": '", piece.text, "' is not a byte such as <0x0A>"));
  return piece;
}

void parse_trainer(std::string_view message, SentencePieceModel& model, const std::string& name) {
  Fields fields(message, name);
  for (Field field; fields.next(field);) {
    const Meaning meaning(field, name);
    if (field.number == 3 && meaning.number() != 1 && meaning.number() != 2)
      throw DataError(text(name, ": its model_type is ",
                           meaning.number() == 3   ? "word"
                           : meaning.number() == 4 ? "char"
                                                   : "unknown",
                           "; SentencePiece models are read of unigram and bpe"));
    if (field.number == 3) model.unigram = meaning.number() == 1;
    if (field.number == 24 && meaning.truth())
      throw DataError(name + ": treats a space as the end of a word (treat_whitespace_as_suffix), which is not read here");
    if (field.number == 35) model.byte_fallback = meaning.truth();
    if (field.number == 44) model.unknown_written = meaning.text();
    if (field.number == 47) model.end_piece = meaning.text();
  }
}

void parse_normalizer(std::string_view message, SentencePieceModel& model, const std::string& name) {
  Fields fields(message, name);
  for (Field field; fields.next(field);) {
    const Meaning meaning(field, name);
    if (field.number == 2) model.characters = meaning.text();
    if (field.number == 3) model.dummy_prefix = meaning.truth();
    if (field.number == 4) model.collapse = meaning.truth();
    if (field.number == 5 && !meaning.truth())
      throw DataError(name + ": keeps spaces as they are in its pieces (escape_whitespaces: false), which is not read here");
  }
}

void refuse_denormalizer(std::string_view message, const std::string& name) {
  SentencePieceModel decoding;
  parse_normalizer(message, decoding, name);
  if (!decoding.characters.empty()) throw DataError(name + ": has rules for decoding (denormalizer_spec), which are not read here");
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& name) {
  SentencePieceModel model;
  model.digest = digest(bytes);
  Fields fields(bytes, name);
  for (Field field; fields.next(field);) {
    const Meaning meaning(field, name);
    if (field.number == 1) model.pieces.push_back(parse_piece(meaning.message(), model.pieces.size(), name));
    if (field.number == 2) parse_trainer(meaning.message(), model, name);
    if (field.number == 3) parse_normalizer(meaning.message(), model, name);
    if (field.number == 5) refuse_denormalizer(meaning.message(), name);
    if (field.number <= 3) model.serialized += field.whole;
  }
  if (model.pieces.empty()) throw DataError(name + ": is not a SentencePiece model: it has no pieces");
  return model;
}

SentencePieceModel read_sentencepiece_model(const std::string& path) {
  const std::string bytes = read_file(path, kLargestModel, "a SentencePiece model");
  rehearse(path, [&] { parse_sentencepiece_model(bytes, path); });
  return parse_sentencepiece_model(bytes, path);
}

uint8_t byte_of(const SentencePieceModel::Piece& piece) { return parse_byte(piece.text).value(); }

std::string with_spaces(std::string_view piece) {
  std::string written(piece);
  for (size_t i = 0; (i = written.find(SentencePieceModel::kSpace, i)) != std::string::npos; ++i)
    written.replace(i, SentencePieceModel::kSpace.size(), " ");
  return written;
}

}  // namespace trireme
