// Fuzzes a token shard: the bytes as they are, or, if they begin with 'h', as the header of a valid
// one with a right digest.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "checkpoint/digest.h"
#include "data/shard/hdf5_file.h"
#include "data/shard/shard.h"
#include "test/fuzz/fuzz.h"

using namespace trireme;

namespace {

constexpr size_t kBlock = 4096, kDigestAt = 16, kDigestedFrom = 33;

// A shard of a few documents.
const std::string& whole() {
  static const std::string bytes = [] {
    const std::string path = fuzz::directory() + "/whole.h5";
    std::vector<int32_t> tokens(3000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 257);
    const std::vector<uint8_t> trained(3000, 1);
    write_shard(path, {.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 3000}, tokens,
                std::vector<int64_t>{0, 10, 1000, 2000}, {.trained = trained, .trained_bytes = 3000, .row = 1000});
    return fuzz::read(path);
  }();
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(fuzz::words(data, size));
  if (bytes.starts_with('h')) {
    std::string block = bytes.substr(1, kBlock);
    block.resize(kBlock, '\0');
    block.replace(kDigestAt, 16, hex(digest(block.data() + kDigestedFrom, static_cast<int64_t>(kBlock - kDigestedFrom))));
    bytes = block + whole().substr(kBlock);
  }
  const std::string path = fuzz::directory() + "/shard.h5";
  fuzz::write(path, bytes);
  try {
    const ShardReader shard(path);
    std::vector<int32_t> tokens(static_cast<size_t>(std::min<int64_t>(shard.tokens(), 1 << 16)));
    shard.read(0, tokens);
    for (const int32_t token : tokens) fuzz::must_hold(token >= 0 && token < shard.facts().vocab, "tokens are of the vocabulary");
    std::vector<uint8_t> trained(tokens.size());
    shard.read_trained(0, trained);
    fuzz::must_hold(std::ranges::count(trained, 1) == shard.count_trained(0, std::ssize(trained)),
                    "targets are counted as they are read");
  } catch (const DataError&) {
  }
  return 0;
}
