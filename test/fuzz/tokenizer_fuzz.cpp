// Fuzzes tokenizers: tokenizer.json if the bytes begin with a brace, a SentencePiece model if they
// begin with a piece, else tiktoken's ranks. An accepted one decodes the text that it has encoded;
// a SentencePiece model may normalise it.
#include "base/error.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_sentencepiece.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view words = fuzz::words(data, size);
    const bool json = words.starts_with('{'), pieces = words.starts_with('\n');
    const auto tokenizer =
        pieces ? make_sentencepiece_tokenizer(parse_sentencepiece_model(words, "fuzz"), "fuzz")
               : make_bpe_tokenizer(json ? parse_tokenizer_json(words, "fuzz") : parse_tiktoken(words, "fuzz", "cl100k"));
    const std::string text = "Where are 12 rowers, and\n\ttheir l\xc3\xa9oars?";
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    const std::string decoded = tokenizer->decode(ids);
    fuzz::must_hold(pieces || decoded == text, "what was encoded is decoded");
  } catch (const DataError&) {
  }
  return 0;
}
