// Reports about shards: lengths and texts of documents.
#include "data/build/inspect.h"

#include "base/error.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// Shards of these texts, a document each, by bytes.
void write_texts(const std::string& path, const std::vector<std::string>& texts) {
  std::vector<int32_t> tokens;
  std::vector<int64_t> starts;
  for (const std::string& text : texts) {
    starts.push_back(static_cast<int64_t>(tokens.size()));
    for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
    tokens.push_back(256);
  }
  write_shard(path, {"bytes", 257, 256, 1}, tokens, starts);
}

}  // namespace

TEST_CASE("lengths of documents are counted over all shards") {
  const Scratch scratch;
  write_texts(scratch / "a.h5", {"", "a", "ab", "abc"});            // each followed by its end: 1 to 4
  write_texts(scratch / "b.h5", {std::string(99, 'x'), "abcdef"});  // 100, 7
  const DocumentLengths lengths = document_lengths({scratch.path()});
  CHECK(lengths.documents == 6);
  CHECK(lengths.shortest == 1);
  CHECK(lengths.longest == 100);
  CHECK(lengths.median == 4);
  CHECK(lengths.counts[0] == 1);
  CHECK(lengths.counts[1] == 2);
  CHECK(lengths.counts[2] == 2);
  CHECK(lengths.counts[6] == 1);
}

TEST_CASE("sampled documents are spread over all shards, and their texts end where a character does") {
  const Scratch scratch;
  write_texts(scratch / "a.h5", {"one", "two", "three", "four"});
  write_texts(scratch / "b.h5", {"", "\u4f60\u597d", "seven", "eight"});
  const auto tokenizer = make_byte_tokenizer();
  const auto texts = [&](int64_t count, int64_t most) {
    std::vector<std::string> all;
    for (const SampleDocument& sample : sample_documents({scratch.path()}, *tokenizer, count, most)) all.push_back(sample.text);
    return all;
  };
  using Texts = std::vector<std::string>;
  CHECK(texts(1, 100) == Texts{"one"});
  CHECK(texts(4, 100) == Texts{"one", "three", "", "seven"});
  CHECK(texts(100, 100) == Texts{"one", "two", "three", "four", "", "\u4f60\u597d", "seven", "eight"});
  CHECK(texts(8, 4) == Texts{"one", "two", "thre", "four", "", "\u4f60", "seve", "eigh"});
  const auto all = sample_documents({scratch.path()}, *tokenizer, 8, 4);
  CHECK_FALSE(all[3].cut);
  CHECK(all[2].cut);
  CHECK(all[5].cut);
  CHECK(all[7].number == 3);
  CHECK(all[7].tokens == 6);
  CHECK(all[7].shard == scratch / "b.h5");

  const std::vector<int32_t> tokens(9, 1);
  write_shard(scratch / "c.h5", {"another", 257, 256, 1}, tokens, std::vector<int64_t>{0});
  CHECK_THROWS_WITH(texts(1, 9), ContainsSubstring("c.h5: was made with tokenizer another, not with bytes"));
}
