#include "data/shard/shard.h"

#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "test/catch.h"
#include "test/data/damage.h"
#include "test/data/h5dump.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

std::vector<int32_t> random_tokens(size_t count, uint64_t vocab) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(philox64(3, i) % vocab);
  return tokens;
}

const ShardFacts kByteFacts{.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 1234};

}  // namespace

TEST_CASE("a shard gives back what was written, in 16 and in 32 bits") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const int64_t vocab = GENERATE(int64_t{257}, int64_t{65536}, int64_t{65537}, int64_t{2000000000});
  const size_t count = GENERATE(size_t{1}, size_t{7}, size_t{100001});
  ShardFacts facts = kByteFacts;
  facts.vocab = vocab;
  const auto tokens = random_tokens(count, static_cast<uint64_t>(vocab));
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < static_cast<int64_t>(count); i += 3) starts.push_back(i);
  write_shard(path, facts, tokens, starts);

  const ShardReader shard(path);
  CHECK(shard.tokens() == static_cast<int64_t>(count));
  CHECK(shard.facts().vocab == vocab);
  CHECK(shard.facts().text_bytes == 1234);
  CHECK(shard.facts().tokenizer == "bytes");
  CHECK(std::vector<int64_t>(shard.document_starts().begin(), shard.document_starts().end()) == starts);
  std::vector<int32_t> all(count);
  shard.read(0, all);
  CHECK(all == tokens);
  for (uint64_t i = 0; i < 50; ++i) {
    const auto begin = static_cast<int64_t>(philox64(1, i) % count);
    std::vector<int32_t> some(static_cast<size_t>(philox64(2, i) % (count - static_cast<size_t>(begin) + 1)));
    shard.read(begin, some);
    CHECK(std::equal(some.begin(), some.end(), tokens.begin() + begin));
  }
  shard.verify();
  CHECK(shard.file_bytes() < static_cast<int64_t>(count) * 4 + static_cast<int64_t>(starts.size()) * 8 + 40000);
  std::vector<int32_t> beyond(2);
  CHECK_THROWS_AS(shard.read(static_cast<int64_t>(count) - 1, beyond), Error);
}

TEST_CASE("a shard without tokens or documents is sound") {
  const Scratch scratch;
  write_shard(scratch / "a.h5", kByteFacts, {}, {});
  const ShardReader shard(scratch / "a.h5");
  CHECK(shard.tokens() == 0);
  shard.verify();
}

TEST_CASE("equal content gives equal digests, other content others") {
  const Scratch scratch;
  const auto digest = [&](const std::string& name, std::vector<int32_t> tokens, int64_t start) {
    write_shard(scratch / name, kByteFacts, tokens, std::vector<int64_t>{start});
    return ShardReader(scratch / name).digest();
  };
  const uint64_t one = digest("a.h5", {1, 2, 3}, 0);
  CHECK(one == digest("b.h5", {1, 2, 3}, 0));
  CHECK(one != digest("c.h5", {1, 2, 4}, 0));
  CHECK(one != digest("d.h5", {1, 2, 3}, 1));
}

TEST_CASE("HDF5's own tools open a shard") {
  const Scratch scratch;
  write_shard(scratch / "a.h5", kByteFacts, std::vector<int32_t>{5, 6, 256}, std::vector<int64_t>{0});
  if (!has_h5dump()) return;
  REQUIRE(std::system(("h5dump " + scratch / "a.h5" + " > " + scratch / "out").c_str()) == 0);
  CHECK_THAT(read_text(scratch / "out"), ContainsSubstring("(0): 5, 6, 256"));
  CHECK_THAT(read_text(scratch / "out"), ContainsSubstring("trireme shard 1"));
}

TEST_CASE("a flipped bit anywhere in a shard is found, and so is any truncation") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  write_shard(path, kByteFacts, random_tokens(300, 257), std::vector<int64_t>{0, 10, 200});
  const std::string sound = read_text(path);
  CHECK(unnoticed_flips(path) == 0);
  ShardReader(path).verify();
  for (size_t length = 0; length < sound.size(); length += 97) {
    write_text(path, sound.substr(0, length));
    CHECK_THROWS_AS(ShardReader(path), DataError);
  }
  write_text(path, sound + "x");
  CHECK_THROWS_WITH(ShardReader(path), ContainsSubstring("1 bytes too many"));
}

TEST_CASE("a damaged page is found when it is first read, and only then") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const auto tokens = random_tokens(100000, 257);
  write_shard(path, kByteFacts, tokens, std::vector<int64_t>{0});
  std::string bytes = read_text(path);
  const Hdf5Layout layout = read_hdf5_layout(path);
  bytes[static_cast<size_t>(layout.datasets[2].offset) + 150000] ^= 1;  // datasets by name: tokens is the last
  write_text(path, bytes);
  const ShardReader shard(path);
  std::vector<int32_t> some(1000);
  shard.read(0, some);
  CHECK(std::equal(some.begin(), some.end(), tokens.begin()));
  CHECK_THROWS_WITH(shard.read(70000, some), ContainsSubstring("tokens 65536 to 98303 are damaged"));
  CHECK_THROWS_WITH(shard.verify(), ContainsSubstring("are damaged"));
}
