// Contents of a SentencePiece .model file, a protobuf, read with distrust.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct SentencePieceModel {
  enum class Kind { normal = 1, unknown, control, user_defined, unused, byte };  // the file's numbers
  struct Piece {
    std::string text;  // with kSpace for a space
    Kind kind = Kind::normal;
    float score = 0;
  };
  static constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581

  std::vector<Piece> pieces;  // by id
  uint64_t digest = 0;        // of the file
  bool unigram = true;        // or BPE
  std::string serialized;     // pieces, trainer_spec and normalizer_spec, for the library
  bool byte_fallback = false;
  bool dummy_prefix = true;                        // a space is put in front of a text
  bool collapse = true;                            // runs of spaces become one, those at both ends none
  std::string end_piece = "</s>";                  // a control symbol, if there is one
  std::string unknown_written = " \xe2\x81\x87 ";  // what an unknown piece is decoded to
  std::string characters;                          // the rules by which they are normalised, compiled
};

// `name` opens the messages of the DataErrors: for a file that is not such a model, is damaged where the library would not notice,
// or is of a kind that is not read here (words or characters as pieces, a space as the end of a word, rules for decoding).
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& name);
SentencePieceModel read_sentencepiece_model(const std::string& path);

std::string with_spaces(std::string_view piece);          // in place of kSpace
uint8_t byte_of(const SentencePieceModel::Piece& piece);  // of kind byte

}  // namespace trireme
