// tokenizer.json, or, where the bytes do not begin with a brace, tiktoken's ranks. One that is accepted gives text back that it has
// taken apart.
#include "data/tokenizer_bpe.h"
#include "kernels/check.h"
#include "test/fuzz/fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view words = fuzz::words(data, size);
    const bool json = words.starts_with('{');
    const auto tokenizer = make_bpe_tokenizer(json ? parse_tokenizer_json(words, "fuzz") : parse_tiktoken(words, "fuzz", "cl100k"));
    const std::string text = "Where are 12 rowers, and\n\ttheir l\xc3\xa9oars?";
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    fuzz::must_hold(tokenizer->decode(ids) == text, "what was encoded is decoded");
  } catch (const DataError&) {
  }
  return 0;
}
