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
  CHECK(shard.document_starts() == starts);
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

TEST_CASE("documents are found in every window, whatever their lengths") {
  const Scratch scratch;
  std::vector<int64_t> starts;
  int64_t tokens = 3;  // of a document that another shard begins
  for (uint64_t i = 0; i < 3000; ++i)
    starts.push_back(tokens), tokens += 1 + static_cast<int64_t>(philox64(1, i) % (i % 700 == 0 ? 900 : 5));
  const std::string path = scratch / "a.h5";
  write_shard(path, kByteFacts, random_tokens(static_cast<size_t>(tokens), 257), starts);
  const ShardReader shard(path);
  CHECK(shard.documents() == 3000);
  CHECK(shard.first_document() == -1);
  CHECK(shard.document_starts() == starts);
  for (uint64_t i = 0; i < 3000; ++i) {
    const auto begin = static_cast<int64_t>(philox64(2, i) % static_cast<uint64_t>(tokens));
    const int64_t end = std::min(tokens, begin + static_cast<int64_t>(philox64(3, i) % (i % 2 == 0 ? 9 : 4000)));
    std::vector<int64_t> wanted;
    for (const int64_t start : starts)
      if (begin < start && start < end) wanted.push_back(start);
    CAPTURE(begin, end);
    REQUIRE(shard.starts_between(begin, end) == wanted);
    const int64_t number = std::ranges::upper_bound(starts, begin) - starts.begin() - 1;
    REQUIRE(shard.document_at(begin) == number);
    const auto [first, last] = shard.document(number);
    REQUIRE((first <= begin && begin < last));
  }
}

TEST_CASE("document starts that are damaged, or change later, are found when they are used") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  std::vector<int64_t> starts(2000);
  std::iota(starts.begin(), starts.end(), 0);
  write_shard(path, kByteFacts, random_tokens(3000, 257), starts);
  const std::string sound = read_text(path);
  const Hdf5Layout layout = read_hdf5_layout(path);
  const int64_t offset = std::ranges::find(layout.datasets, std::string("document_starts"), &Hdf5Dataset::name)->offset;
  const auto spoil = [&](int64_t number) { File::open_to_write(path).write_at("\x7f", 1, offset + 8 * number); };
  spoil(1999);
  const ShardReader shard(path);
  std::vector<int32_t> some(10);
  shard.read(0, some);
  CHECK_THROWS_WITH(shard.document_at(0), ContainsSubstring("a.h5: the document starts are damaged: their digest does not match"));
  CHECK_THROWS_WITH(shard.check_tables(), ContainsSubstring("the document starts are damaged"));

  File::open_to_write(path).write_at(sound.data(), std::ssize(sound), 0);
  CHECK(shard.document_at(700) == 700);
  CHECK(shard.check_tables() == 2000 * 8 + 8);
  spoil(1999);
  CHECK(shard.document_at(700) == 700);
  CHECK_THROWS_WITH(shard.document_at(1990), ContainsSubstring("the document starts are damaged: they have changed"));
}

TEST_CASE("a shard that another rank has opened is read, if it is the same here") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const auto tokens = random_tokens(3000, 257);
  write_shard(path, kByteFacts, tokens, std::vector<int64_t>{5, 900});
  const ShardReader first(path);
  const KnownShard known = first.known();
  const ShardReader second(known);
  CHECK(second.digest() == first.digest());
  CHECK(second.tokens() == 3000);
  CHECK(second.facts().text_bytes == 1234);
  CHECK(second.document_starts() == std::vector<int64_t>{5, 900});
  std::vector<int32_t> some(3000);
  second.read(0, some);
  CHECK(some == tokens);
  second.verify();

  const ShardReader third(known);
  write_shard(path, kByteFacts, random_tokens(3000, 256), std::vector<int64_t>{5, 901});
  CHECK_THROWS_WITH(third.read(0, some),
                    ContainsSubstring("a.h5: is another file than the one that was opened first, by this rank or by rank 0"));
  const ShardReader fourth(known);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(fourth.read(0, some), DataError);
}

// In a process that may open few files.
TEST_CASE("a shard is replaced while it is closed", "[.child]") {
  const Scratch scratch;
  write_shard(scratch / "a.h5", kByteFacts, random_tokens(30, 257), std::vector<int64_t>{0});
  const ShardReader shard(scratch / "a.h5");
  std::vector<std::unique_ptr<ShardReader>> others;  // more than stay open
  for (int i = 0; i < 100; ++i) {
    const std::string path = scratch / ("b" + std::to_string(i) + ".h5");
    std::filesystem::create_hard_link(scratch / "a.h5", path);
    others.push_back(std::make_unique<ShardReader>(path));
  }
  std::vector<int32_t> some(10);
  shard.read(0, some);  // opens it again
  for (const auto& other : others) other->read(0, some);
  write_shard(scratch / "c.h5", kByteFacts, random_tokens(30, 200), std::vector<int64_t>{0});
  std::filesystem::rename(scratch / "c.h5", scratch / "a.h5");
  CHECK_THROWS_WITH(shard.read(0, some), ContainsSubstring("a.h5: is another file than the one that was opened first"));
}

TEST_CASE("a shard that is replaced while it is closed is not read") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  CHECK(std::system(("ulimit -n 64; exec " + self + " 'a shard is replaced while it is closed' > /dev/null").c_str()) == 0);
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
