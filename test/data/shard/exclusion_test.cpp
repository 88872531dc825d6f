// Documents that are left out of training: rows with and without them, how they are chosen, and the file that names them.
#include "data/shard/exclusion.h"

#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "data/build/build.h"
#include "data/loader/loader.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

constexpr int64_t kContext = 5;

// Token i is first + i.
std::string rising_shard(const Scratch& scratch, const std::string& name, int32_t first, int32_t count,
                         const std::vector<int64_t>& starts) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  write_shard(scratch / name, {.tokenizer = "rising", .vocab = 100000, .end_of_document = 0, .text_bytes = count}, tokens, starts);
  return scratch / name;
}

Exclusion of_documents(const std::vector<std::string>& shards, const std::vector<DocumentChoice::Piece>& documents) {
  std::vector<ShardReader> readers;
  std::vector<const ShardReader*> pointers;
  for (const std::string& path : shards) readers.emplace_back(path);
  for (const ShardReader& reader : readers) pointers.push_back(&reader);
  DocumentChoice choice(pointers);
  for (const auto& [shard, number] : documents) choice.add(shard, number);
  return choice.exclusion("mask");
}

using Planes = std::array<std::vector<int32_t>, 4>;  // tokens, targets, positions, document starts
Planes planes_of(const Batch& batch) {
  const auto plane = [](const Tensor& tensor) {
    return std::vector<int32_t>(tensor.as<int32_t>(), tensor.as<int32_t>() + tensor.size());
  };
  return {plane(batch.tokens), plane(batch.targets), plane(batch.positions), plane(batch.document_start)};
}

}  // namespace

TEST_CASE("rows without excluded documents are the rows with them, except for targets in and right after them") {
  const Scratch scratch;
  const std::vector<std::string> shards{rising_shard(scratch, "a.h5", 1000, 43, {0, 4, 5, 13, 20, 31}),
                                        rising_shard(scratch, "b.h5", 2000, 36, {7, 17, 22})};
  const Corpus all(shards, kContext, false);
  Corpus some(shards, kContext, false);
  // Documents 1, 2 and 5 of a, what b begins with, and its document 1.
  CHECK(some.exclude(of_documents(shards, {{0, 1}, {0, 2}, {1, 1}})) == 2);
  CHECK(some.exclude(of_documents(shards, {{1, -1}})) == 2);  // which also chooses where it continues
  CHECK(some.excluded_documents() == 5);
  const auto excluded = [](int32_t token) {
    return (1004 <= token && token < 1013) || (1031 <= token && token < 1043) || (2000 <= token && token < 2007) ||
           (2017 <= token && token < 2022);
  };
  CHECK(all.samples() == some.samples());
  for (const int replicas : {1, 2}) {
    const LoaderOptions options{.context = kContext,
                                .batch = 6,
                                .microbatch = 1,
                                .replica = replicas - 1,
                                .replicas = replicas,
                                .seed = 3,
                                .document_mask = true,
                                .restart_positions = true};
    Loader whole(all, options), masked(some, options);
    for (int step = 0; step < 9; ++step) {
      const Batch without = masked.next();
      const Planes before = planes_of(whole.next()), after = planes_of(without);
      for (const size_t plane : {0, 2, 3}) CHECK(before[plane] == after[plane]);
      for (size_t i = 0; i < before[1].size(); ++i) {
        const bool silent = excluded(before[0][i]) || excluded(before[1][i]);
        CHECK(after[1][i] == (silent ? -1 : before[1][i]));
      }
      CHECK(without.valid == std::ranges::count_if(after[1], [](int32_t target) { return target >= 0; }));
    }
  }
  int64_t targets = 0;
  for (int64_t i = 0; i < some.samples(); ++i) targets += some.targets(i);
  CHECK(targets == some.targets());
  CHECK(targets < all.targets());
  CHECK(all.excluded_digest() == 0);
  CHECK(some.excluded_digest() != 0);
}

TEST_CASE("a list of excluded documents comes back as it was written, and damage is found") {
  const Scratch scratch;
  Exclusion written{.path = scratch / "mask",
                    .shards = {{0xfedcba9876543210, "/a dir/train-00000.h5", {-1, 0, 1, 7}}, {5, "/b.h5", {3, 4, 5, 9, 1000000}}}};
  write_exclusion(written);
  CHECK_THAT(read_text(written.path), ContainsSubstring("shard fedcba9876543210 /a dir/train-00000.h5\n-1\n0-1\n7\n"));
  CHECK(is_exclusion(written.path));
  const Exclusion read = read_exclusion(written.path);
  REQUIRE(read.shards.size() == 2);
  CHECK(read.documents() == 9);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(read.shards[i].digest == written.shards[i].digest);
    CHECK(read.shards[i].path == written.shards[i].path);
    CHECK(read.shards[i].documents == written.shards[i].documents);
  }
  const std::string sound = read_text(written.path);
  for (size_t i = 0; i < sound.size(); ++i) {
    std::string bytes = sound;
    bytes[i] ^= 1;
    write_text(written.path, bytes);
    CHECK_THROWS_AS(read_exclusion(written.path), DataError);
    write_text(written.path, sound.substr(0, i));
    CHECK_THROWS_AS(read_exclusion(written.path), DataError);
  }
  write_text(scratch / "other", "train-00000.h5:3\n");
  CHECK(!is_exclusion(scratch / "other"));
  CHECK(!is_exclusion(scratch.path()));
  CHECK_THROWS_WITH(read_exclusion(scratch / "other"), ContainsSubstring("is not a list of excluded documents"));
}

TEST_CASE("shards that have changed are refused, others are passed over") {
  const Scratch scratch;
  const std::string a = rising_shard(scratch, "a.h5", 0, 40, {0, 9}), b = rising_shard(scratch, "b.h5", 50, 40, {0, 9});
  const Exclusion of_a = of_documents({a}, {{0, 1}});
  Corpus other({b}, kContext, false);
  CHECK(other.exclude(of_a) == 0);
  CHECK(other.excluded_digest() == 0);
  std::filesystem::rename(a, scratch / "moved.h5");
  Corpus moved({scratch / "moved.h5"}, kContext, false);
  CHECK(moved.exclude(of_a) == 1);
  rising_shard(scratch, "a.h5", 1, 40, {0, 9});
  Corpus changed({a}, kContext, false);
  CHECK_THROWS_WITH(changed.exclude(of_a), ContainsSubstring("was made for another content of ") && ContainsSubstring("a.h5"));
  Exclusion beyond = of_a;
  beyond.shards[0].documents = {2};
  CHECK_THROWS_WITH(moved.exclude(beyond), ContainsSubstring("excludes document 2 of "));
}

TEST_CASE("documents are chosen by list, file and text, whole also where they lie in several shards") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "in");
  write_text(scratch / "in/a.txt", "nothing of note");
  write_text(scratch / "in/b.txt", "the secret word is spread over several of these short shards");
  write_text(scratch / "in/c.txt", "\xc3\x89t\xc3\xa9");
  const auto bytes = make_byte_tokenizer();
  const auto built =
      build_shards({.inputs = {scratch / "in"}, .validation_inputs = {}, .output = scratch / "out", .tokens_per_shard = 21}, *bytes,
                   [](const BuildProgress&) {});
  REQUIRE(built.train.shards.size() == 4);  // of 16 + 61 + 6 tokens
  std::vector<ShardReader> readers;
  for (const std::string& path : built.train.shards) readers.emplace_back(path);
  std::vector<const ShardReader*> shards;
  for (const ShardReader& reader : readers) shards.push_back(&reader);
  const auto chosen = [&](auto choose) {
    DocumentChoice choice(shards);
    choose(choice);
    std::vector<std::pair<std::string, std::vector<int64_t>>> found;
    for (const ExcludedShard& shard : choice.exclusion("mask").shards)
      found.emplace_back(std::filesystem::path(shard.path).filename().string(), shard.documents);
    return found;
  };
  const decltype(chosen([](DocumentChoice&) {})) second{
      {"train-00000.h5", {1}}, {"train-00001.h5", {-1}}, {"train-00002.h5", {-1}}, {"train-00003.h5", {-1}}};
  CHECK(chosen([&](DocumentChoice& c) { c.add_from(scratch / "in/b.txt"); }) == second);
  CHECK(chosen([&](DocumentChoice& c) { c.add_matching(TextPattern("s\\w+t word .*? several"), *bytes); }) == second);
  CHECK(chosen([&](DocumentChoice& c) { c.add(2, -1); }) == second);
  write_text(scratch / "list", "# a comment\n\ntrain-00001.h5:-1\n" + built.train.shards[0] + ":0\n");
  CHECK(chosen([&](DocumentChoice& c) { c.add_listed(scratch / "list"); }).front().second == std::vector<int64_t>{0, 1});
  CHECK(chosen([&](DocumentChoice& c) { c.add_matching(TextPattern("(?i)^\\w{3}$"), *bytes); }) ==
        decltype(second){{"train-00003.h5", {0}}});
  CHECK(chosen([&](DocumentChoice& c) { c.add_matching(TextPattern("nowhere"), *bytes); }).empty());
  CHECK_THROWS_WITH(TextPattern("(a"), ContainsSubstring("'(a' is not a regular expression"));
  for (const auto& [line, complaint] : {std::pair("train-00000.h5", "is not SHARD:NUMBER"),
                                        {"train-00000.h5:x", "is not SHARD:NUMBER"},
                                        {"train-9.h5:0", "none of the shards is train-9.h5"},
                                        {"train-00001.h5:0", "has documents -1 to -1"}}) {
    write_text(scratch / "list", std::string(line) + "\n");
    DocumentChoice choice(shards);
    CHECK_THROWS_WITH(choice.add_listed(scratch / "list"), ContainsSubstring("list:1: ") && ContainsSubstring(complaint));
  }
}

TEST_CASE("of a document that was cut to be packed all pieces are chosen, in whatever shards they lie") {
  const Scratch scratch;
  std::string lines;
  for (const size_t length : {20, 300, 41, 10, 50, 200, 7})
    lines += "{\"text\": \"" + std::string(length, static_cast<char>('a' + length % 26)) + "\"}\n";
  write_text(scratch / "a.jsonl", lines);
  const auto bytes = make_byte_tokenizer();
  const auto made = build_shards({.inputs = {scratch / "a.jsonl"},
                                  .validation_inputs = {},
                                  .output = scratch / "out",
                                  .tokens_per_shard = 128,
                                  .pack_context = 64},
                                 *bytes, [](const BuildProgress&) {});
  REQUIRE(made.train.shards.size() > 2);
  std::vector<ShardReader> readers;
  std::vector<const ShardReader*> pointers;
  for (const std::string& path : made.train.shards) readers.emplace_back(path);
  for (const ShardReader& reader : readers) pointers.push_back(&reader);
  std::vector<DocumentChoice::Piece> of_second;  // the pieces of 300 letters, by their text
  for (size_t s = 0; s < readers.size(); ++s)
    for (int64_t i = 0; i < readers[s].documents(); ++i) {
      std::vector<int32_t> first(1);
      readers[s].read(readers[s].document(i).begin, first);
      if (first[0] == 'a' + 300 % 26) of_second.emplace_back(s, i);
    }
  REQUIRE(of_second.size() == 5);
  for (const auto& [shard, number] : of_second) {
    DocumentChoice choice(pointers);
    choice.add(shard, number);
    CHECK(choice.size() == 5);
    int64_t found = 0;
    for (const ExcludedShard& of : choice.exclusion("mask").shards) found += std::ssize(of.documents);
    CHECK(found == 5);
  }
}
