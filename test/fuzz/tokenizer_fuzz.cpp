// tokenizer.json. One that is accepted gives text back that it has taken apart.
#include "data/tokenizer_bpe.h"
#include "kernels/check.h"
#include "test/fuzz/fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::unique_ptr<Tokenizer> tokenizer = make_bpe_tokenizer(parse_tokenizer_json(fuzz::words(data, size), "fuzz"));
    const std::string text = "Where are 12 rowers, and\n\ttheir l\xc3\xa9oars?";
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    fuzz::must_hold(tokenizer->decode(ids) == text, "what was encoded is decoded");
  } catch (const DataError&) {
  }
  return 0;
}
