// Tokens of llm.c, Megatron-LM and NumPy, written by small independent writers, become shards token
// for token.
#include "data/build/import.h"

#include <filesystem>
#include <random>

#include "base/error.h"
#include "data/build/build_journal.h"
#include "data/loader/corpus.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/data/token_files.h"

using namespace trireme;

namespace {

const auto kUntold = [](const BuildProgress&) {};

struct Imported {
  std::vector<int32_t> tokens;
  std::vector<int64_t> starts;
};

Imported imported(const ImportOptions& options) {
  const auto tokenizer = make_byte_tokenizer();
  const SplitSummary summary = import_shards(options, *tokenizer, kUntold);
  Imported all;
  for (const std::string& path : summary.shards) {
    const ShardReader shard(path);
    shard.verify();
    for (const int64_t start : shard.document_starts()) all.starts.push_back(start + std::ssize(all.tokens));
    std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
    shard.read(0, tokens);
    all.tokens.insert(all.tokens.end(), tokens.begin(), tokens.end());
  }
  CHECK(summary.tokens == std::ssize(all.tokens));
  CHECK(summary.documents == std::ssize(all.starts));
  return all;
}

// Documents of bytes, each followed by its end.
std::vector<std::vector<int32_t>> some_documents() {
  std::mt19937 chance(3);
  std::vector<std::vector<int32_t>> documents;
  for (int i = 0; i < 40; ++i) {
    auto& document = documents.emplace_back(chance() % 30);
    for (int32_t& token : document) token = static_cast<int32_t>(chance() % 256);
    document.push_back(256);
  }
  return documents;
}

std::vector<int32_t> joined(const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> all;
  for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

std::vector<int64_t> starts_of(const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int64_t> starts;
  int64_t at = 0;
  for (const auto& document : documents) starts.push_back(at), at += std::ssize(document);
  return starts;
}

}  // namespace

TEST_CASE("llm.c's, Megatron's and NumPy's tokens become shards, token for token, with their documents") {
  const auto documents = some_documents();
  const std::vector<int32_t> tokens = joined(documents);
  const auto count = static_cast<int32_t>(tokens.size());
  const std::string shape = "(" + std::to_string(count) + ",)";
  const std::pair<const char*, std::string> files[] = {
      {"a.bin", llmc(20240520, 1, count, as<uint16_t>(tokens))}, {"b.bin", llmc(20240801, 7, count, as<uint32_t>(tokens))},
      {"a.npy", npy("<u2", shape, as<uint16_t>(tokens))},        {"b.npy", npy("<u4", shape, as<uint32_t>(tokens), 2)},
      {"c.npy", npy("<i4", shape, as<int32_t>(tokens))},         {"d.npy", npy("<i8", shape, as<int64_t>(tokens), 3)},
      {"e.npy", npy("<u8", shape, as<uint64_t>(tokens))}};
  for (const auto& [name, bytes] : files) {
    INFO(name);
    const Scratch scratch;
    write_text(scratch / name, bytes);
    const Imported all = imported({.inputs = {scratch / name}, .output = scratch / "out", .tokens_per_shard = 100});
    CHECK(all.tokens == tokens);
    CHECK(all.starts == starts_of(documents));
  }
  const std::pair<uint8_t, std::string> types[] = {
      {8, as<uint16_t>(tokens)}, {3, as<int16_t>(tokens)}, {4, as<int32_t>(tokens)}, {5, as<int64_t>(tokens)}};
  for (const auto& [type, bytes] : types) {
    const Scratch scratch;
    write_text(scratch / "x.bin", bytes);
    write_text(scratch / "x.idx", index_of(type, std::ssize(bytes) / count, documents));
    const Imported all = imported({.inputs = {scratch.path()}, .output = scratch / "out", .split = "validation"});
    CHECK(all.tokens == tokens);
    CHECK(all.starts == starts_of(documents));
    CHECK(std::filesystem::exists(scratch / "out/validation-00000.h5"));
  }
}

TEST_CASE("documents that begin with what ends them, and sequences of several to a document, start where they do") {
  const Scratch scratch;
  const std::vector<int32_t> tokens{256, 1, 2, 256, 3, 256, 256, 4};  // as llm.c writes them: the end in front
  write_text(scratch / "a.bin", llmc(20240520, 1, 8, as<uint16_t>(tokens)));
  CHECK(imported({.inputs = {scratch / "a.bin"}, .output = scratch / "a"}).starts == std::vector<int64_t>{1, 4, 6, 7});

  CHECK(imported({.inputs = {scratch / "a.bin"}, .output = scratch / "begin", .begin = 3}).starts == std::vector<int64_t>{0, 4});
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "a.bin"}, .output = scratch / "none", .begin = 257}),
                    ContainsSubstring("--begin 257: the tokenizer has 257 entries"));

  std::string index = index_of(8, 2, {{1, 2}, {3}, {}, {4, 5, 6}, {7}});
  // Documents of the first two sequences, of an empty one, and of the last two.
  const std::vector<int64_t> first{0, 2, 3, 5, 5, 5};
  index = index.substr(0, index.size() - 6 * 8) + raw(first);
  write_text(scratch / "b.idx", index);
  write_text(scratch / "b.bin", as<uint16_t>({1, 2, 3, 4, 5, 6, 7}));
  const Imported all = imported({.inputs = {scratch / "b.idx", scratch / "b.bin"}, .output = scratch / "b"});
  CHECK(all.tokens == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7});
  CHECK(all.starts == std::vector<int64_t>{0, 3});
}

TEST_CASE("tokens without a header are read as what --format says, and their end is what --end says") {
  const Scratch scratch;
  const auto documents = some_documents();
  const std::vector<int32_t> tokens = joined(documents);
  write_text(scratch / "train.bin", as<uint16_t>(tokens));
  write_text(scratch / "val.bin", as<uint32_t>(tokens));
  const Imported narrow = imported({.inputs = {scratch / "train.bin"}, .output = scratch / "a", .format = TokenFormat::raw16});
  CHECK(narrow.tokens == tokens);
  CHECK(narrow.starts == starts_of(documents));
  CHECK(imported({.inputs = {scratch / "val.bin"}, .output = scratch / "b", .format = TokenFormat::raw32}).tokens == tokens);
  write_text(scratch / "c.bin", as<uint16_t>({1, 7, 2, 3, 7, 4}));
  CHECK(imported({.inputs = {scratch / "c.bin"}, .output = scratch / "c", .format = TokenFormat::raw16, .end = 7}).starts ==
        std::vector<int64_t>{0, 2, 5});
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "c.bin"}, .output = scratch / "d", .end = 257}),
                    "--end 257: the tokenizer has 257 entries");
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "train.bin"}, .output = scratch / "d"}),
                    ContainsSubstring("; for tokens without a header, as nanoGPT writes them, give --format raw16 or raw32"));
  write_text(scratch / "odd.bin", "abc");
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "odd.bin"}, .output = scratch / "d", .format = TokenFormat::raw16}),
                    scratch / "odd.bin: 3 bytes are not whole tokens of 2 bytes");
  CHECK(std::filesystem::is_empty(scratch / "d"));
}

TEST_CASE("Megatron's prefix stands for its .bin") {
  const Scratch scratch;
  write_text(scratch / "meg.bin", as<uint16_t>({1, 2, 3}));
  write_text(scratch / "meg.idx", index_of(8, 2, {{1}, {2, 3}}));
  CHECK(imported({.inputs = {scratch / "meg"}, .output = scratch / "a"}).starts == std::vector<int64_t>{0, 1});
}

TEST_CASE("of directories what holds tokens is taken, and not training with held-out tokens together") {
  const Scratch scratch;
  const std::string fine = scratch / "fine", megatron = scratch / "megatron", other = scratch / "other";
  for (const std::string& directory : {fine, megatron, other}) std::filesystem::create_directories(directory);
  const std::string file = llmc(20240520, 1, 2, as<uint16_t>({5, 6}));
  write_text(fine + "/fineweb_train_000001.bin", file);
  write_text(fine + "/fineweb_val_000000.bin", file);
  write_text(fine + "/notes.txt", "text");
  CHECK_THROWS_WITH(imported({.inputs = {fine}, .output = scratch / "a"}), ContainsSubstring("holds files of train and of val"));
  CHECK(imported({.inputs = {fine + "/*train*"}, .output = scratch / "a"}).tokens == std::vector<int32_t>{5, 6});
  write_text(megatron + "/m.bin", as<uint16_t>({1, 2}));
  write_text(megatron + "/m.idx", index_of(8, 2, {{1, 2}}));
  write_text(megatron + "/cache.npy", "an index of theirs");
  CHECK(imported({.inputs = {megatron}, .output = scratch / "b"}).tokens == std::vector<int32_t>{1, 2});
  write_text(other + "/notes.txt", "text");
  CHECK_THROWS_WITH(imported({.inputs = {other}, .output = scratch / "c"}), ContainsSubstring("no .bin and no .npy under"));
}

TEST_CASE("an import removes what an interrupted one has left, and an unfinished build, which it names") {
  const Scratch scratch;
  write_text(scratch / "a.npy", npy("<u2", "(3,)", as<uint16_t>({1, 2, 3})));
  const std::string out = scratch / "out";
  std::filesystem::create_directory(out);
  std::string message;
  const auto check_import = [&] {
    for (const char* name : {"train-00000.h5.tmp", "train-00007.h5.tmp", "train-partial-2.h5.tmp", "validation-00000.h5.tmp",
                             ".build.json.tmp", ".renaming.json.tmp"})
      write_text(out + "/" + name, "left by one that was killed");
    const ImportOptions options{.inputs = {scratch / "a.npy"}, .output = out, .replace = true};
    import_shards(options, *make_byte_tokenizer(), kUntold, [&](const std::string& words) { message = words; });
    for (const auto& entry : std::filesystem::directory_iterator(out)) CHECK(entry.path().filename() == "train-00000.h5");
    CHECK(ShardReader(out + "/train-00000.h5").tokens() == 3);
  };
  check_import();
  CHECK(message.empty());
  BuildJournal{.key = "of other shards"}.save(out);
  check_import();
  CHECK(message == out + ": an unfinished `data build` is there: its files are removed, and it cannot be continued");
}

TEST_CASE("what was imported is not overwritten unless that is asked for, and then only its split") {
  const Scratch scratch;
  write_text(scratch / "a.npy", npy("<u2", "(3,)", as<uint16_t>({1, 2, 3})));
  write_text(scratch / "b.npy", npy("<u2", "(2,)", as<uint16_t>({4, 5})));
  imported({.inputs = {scratch / "a.npy"}, .output = scratch / "out"});
  imported({.inputs = {scratch / "a.npy"}, .output = scratch / "out", .split = "validation"});
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "b.npy"}, .output = scratch / "out"}),
                    ContainsSubstring("holds shards already"));
  CHECK(imported({.inputs = {scratch / "b.npy"}, .output = scratch / "out", .replace = true}).tokens == std::vector<int32_t>{4, 5});
  CHECK(ShardReader(scratch / "out/validation-00000.h5").tokens() == 3);
  write_text(scratch / "c.npy", npy("<u2", "(3,)", as<uint16_t>({1, 300, 3})));
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "c.npy"}, .output = scratch / "out", .replace = true}),
                    ContainsSubstring("c.npy: token 1 is 300, the tokenizer has 257 entries"));
  CHECK(ShardReader(scratch / "out/train-00000.h5").tokens() == 2);  // as before
  write_text(scratch / "d.npy", npy("<i4", "(2,)", as<int32_t>({1, -3})));
  CHECK_THROWS_WITH(imported({.inputs = {scratch / "d.npy"}, .output = scratch / "d"}), ContainsSubstring("d.npy: token 1 is -3"));
}
