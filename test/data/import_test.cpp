// Tokens of llm.c, Megatron-LM and NumPy, written by small writers of the tests' own: token for token, and what is damaged is told.
#include "data/import.h"

#include <cstring>
#include <filesystem>
#include <random>

#include "data/corpus.h"
#include "kernels/check.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const auto kSilent = [](const BuildProgress&) {};

template <class Number>
std::string raw(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}
template <class Number>
std::string raw(Number number) {
  return raw(std::vector<Number>{number});
}
template <class Number>
std::string as(const std::vector<int32_t>& tokens) {
  return raw(std::vector<Number>(tokens.begin(), tokens.end()));
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return raw(header) + tokens;
}

// The index of documents, each of one sequence.
std::string index_of(uint8_t type, int64_t width, const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers, first{0};
  int64_t at = 0;
  for (const auto& document : documents) {
    lengths.push_back(static_cast<int32_t>(document.size()));
    pointers.push_back(at);
    first.push_back(static_cast<int64_t>(lengths.size()));
    at += std::ssize(document) * width;
  }
  return std::string("MMIDIDX\0\0", 9) + raw(uint64_t{1}) + raw(type) + raw(uint64_t{lengths.size()}) +
         raw(uint64_t{first.size()}) + raw(lengths) + raw(pointers) + raw(first);
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data, char version = 1) {
  std::string dictionary = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const size_t front = version == 1 ? 10 : 12;
  dictionary.resize((front + dictionary.size() + 64) / 64 * 64 - front - 1, ' ');
  dictionary += '\n';
  const std::string length =
      version == 1 ? raw(static_cast<uint16_t>(dictionary.size())) : raw(static_cast<uint32_t>(dictionary.size()));
  return "\x93NUMPY" + std::string{version, '\0'} + length + dictionary + data;
}

struct Imported {
  std::vector<int32_t> tokens;
  std::vector<int64_t> starts;
};

Imported imported(const ImportOptions& options) {
  const auto tokenizer = make_byte_tokenizer();
  const SplitSummary summary = import_shards(options, *tokenizer, kSilent);
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

// Documents of bytes, each with its end behind it.
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
                    ContainsSubstring("documents begin with 257: the tokenizer has 257 entries"));

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

TEST_CASE("damaged files of tokens are refused with what is wrong") {
  const Scratch scratch;
  const std::vector<int32_t> four{1, 2, 3, 4};
  const std::string good = as<uint16_t>(four), idx = index_of(8, 2, {{1, 2}, {3, 4}});
  const auto with = [](std::string bytes, size_t at, const std::string& put) { return bytes.replace(at, put.size(), put); };
  const std::pair<std::string, const char*> of_llmc[] = {
      {"", "of 0 bytes is no file of llm.c's tokens"},
      {std::string(1023, 'x'), "of 1023 bytes is no file of llm.c's tokens"},
      {std::string(2000, '\0'), "does not begin as llm.c's tokens do"},
      {llmc(20240521, 1, 4, good), "but with 20240521, 1"},
      {llmc(20240520, 2, 4, good), "but with 20240520, 2"},
      {llmc(20240520, 7, 4, good), "but with 20240520, 7"},
      {llmc(20240801, 1, 4, good), "but with 20240801, 1"},
      {llmc(20240520, 1, 5, good), "its header tells of 5 tokens of 2 bytes, the file has 8 bytes"},
      {llmc(20240520, 1, 3, good), "its header tells of 3 tokens of 2 bytes, the file has 8 bytes"},
      {llmc(20240520, 1, -4, good), "its header tells of -4 tokens"},
      {llmc(20240520, 1, INT32_MAX, good), "tells of 2147483647 tokens"},
      {llmc(20240801, 7, 4, good), "its header tells of 4 tokens of 4 bytes, the file has 8 bytes"},
      {llmc(20240520, 1, 4, good + "x"), "the file has 9 bytes"},
      {llmc(20240520, 1, 4, good.substr(1)), "the file has 7 bytes"},
      {llmc(20240520, 1, 4, ""), "the file has 0 bytes"},
  };
  const std::pair<std::string, const char*> of_megatron[] = {
      {"", "is cut off"},
      {idx.substr(0, 8), "is cut off"},
      {with(idx, 0, "X"), "does not begin as Megatron's indices do"},
      {with(idx, 9, raw(uint64_t{2})), "is of version 2, 1 is read"},
      {idx.substr(0, 12), "is cut off"},
      {with(idx, 17, raw(uint8_t{6})), "type 6 is none of tokens"},
      {with(idx, 17, raw(uint8_t{0})), "type 0 is none of tokens"},
      {with(idx, 17, raw(uint8_t{4})), "sequence 1 begins at byte 4, the one before it ends at 8"},
      {with(idx, 18, raw(uint64_t{UINT64_MAX})), "has no room for 18446744073709551615 numbers"},
      {with(idx, 18, raw(uint64_t{1} << 61)), "has no room for"},
      {with(idx, 18, raw(uint64_t{3})), "is cut off"},
      {with(idx, 26, raw(uint64_t{UINT64_MAX})), "has no room for 18446744073709551615 numbers"},
      {with(idx, 26, raw(uint64_t{0})), "its documents do not begin with the first sequence"},
      {with(idx, 26, raw(uint64_t{2})), "its documents do not begin with the first sequence and end with the last"},
      {with(idx, 34, raw(int32_t{-1})), "sequence 0 is of -1 tokens"},
      {with(idx, 34, raw(int32_t{3})), "sequence 1 begins at byte 4, the one before it ends at 6"},
      {with(idx, 38, raw(int32_t{3})), "its index tells of 5 tokens of 2 bytes, the file has 8 bytes"},
      {with(idx, 38, raw(INT32_MAX)), "its index tells of"},
      {with(idx, 42, raw(int64_t{2})), "sequence 0 begins at byte 2, the one before it ends at 0"},
      {with(idx, 50, raw(int64_t{-4})), "sequence 1 begins at byte -4"},
      {with(idx, 58, raw(int64_t{1})), "its documents do not begin with the first sequence"},
      {with(idx, 66, raw(int64_t{9})), "document 1 ends before it begins"},
      {with(idx, 66, raw(int64_t{-1})), "document 0 ends before it begins"},
      {with(idx, 74, raw(int64_t{3})), "its documents do not begin with the first sequence and end with the last"},
      {idx.substr(0, idx.size() - 1), "has no room for 3 numbers"},
  };
  const std::string whole = npy("<u2", "(4,)", good);
  const std::pair<std::string, const char*> of_numpy[] = {
      {"", "does not begin as NumPy's arrays do"},
      {"\x93NUMPX" + whole.substr(6), "does not begin as NumPy's arrays do"},
      {with(whole, 6, std::string(1, '\4')), "does not begin as NumPy's arrays do"},
      {whole.substr(0, 9), "is cut off in its header"},
      {whole.substr(0, 60), "is cut off in its header"},
      {with(whole, 8, "\xff\xff"), "is cut off in its header"},
      {npy("<f4", "(4,)", good), "is an array of '<f4', tokens are"},
      {npy(">u2", "(4,)", good), "is an array of '>u2', tokens are"},
      {npy("|b1", "(4,)", good), "is an array of '|b1', tokens are"},
      {npy("<u2", "(2, 2)", good), "is an array of shape (2, 2), tokens are flat"},
      {npy("<u2", "()", good), "is an array of shape (), tokens are flat"},
      {npy("<u2", "(-4,)", good), "is an array of shape (-4,), tokens are flat"},
      {npy("<u2", "(4", good), "tokens are flat"},
      {npy("<u2", "(5,)", good), "its header tells of 5 tokens of 2 bytes, the file has 8 bytes"},
      {npy("<u2", "(3,)", good), "its header tells of 3 tokens"},
      {npy("<u2", "(999999999999999999,)", good), "its header tells of 999999999999999999 tokens"},
      {npy("<u2", "(9999999999999999999999,)", good), "tokens are flat"},
      {npy("<u4", "(4,)", good), "its header tells of 4 tokens of 4 bytes"},
      {whole + "x", "the file has 9 bytes"},
      {whole.substr(0, whole.size() - 1), "the file has 7 bytes"},
  };
  const auto check = [&](const std::string& path, const char* message) {
    INFO(message);
    CHECK_THROWS_AS(imported({.inputs = {path}, .output = scratch / "out"}), DataError);
    CHECK_THROWS_WITH(imported({.inputs = {path}, .output = scratch / "out"}), ContainsSubstring(message));
  };
  for (const auto& [bytes, message] : of_llmc) write_text(scratch / "l.bin", bytes), check(scratch / "l.bin", message);
  write_text(scratch / "m.bin", good);
  for (const auto& [bytes, message] : of_megatron) write_text(scratch / "m.idx", bytes), check(scratch / "m.bin", message);
  for (const auto& [bytes, message] : of_numpy) write_text(scratch / "n.npy", bytes), check(scratch / "n.npy", message);
  CHECK_FALSE(std::filesystem::exists(scratch / "out/train-00000.h5"));

  // Every cut is told; bytes changed anywhere are, or give tokens.
  std::mt19937 chance(11);
  const auto survives = [&](const std::string& path, const std::string& bytes) {
    write_text(path, bytes);
    try {
      TokenFile file(path, path.ends_with("idx") ? TokenFormat::megatron : TokenFormat::automatic);
      while (!file.next(3).empty()) {
      }
    } catch (const DataError&) {
    }
  };
  const auto check_cuts = [&](const std::string& path, const std::string& bytes, const std::string& opened) {
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      write_text(path, bytes.substr(0, cut));
      CHECK_THROWS_AS(TokenFile(opened), DataError);
    }
    write_text(path, bytes);
    CHECK(TokenFile(opened).tokens() == 4);
  };
  check_cuts(scratch / "n.npy", whole, scratch / "n.npy");
  check_cuts(scratch / "l.bin", llmc(20240520, 1, 4, good), scratch / "l.bin");
  check_cuts(scratch / "m.idx", idx, scratch / "m.bin");
  check_cuts(scratch / "m.bin", good, scratch / "m.bin");
  for (int i = 0; i < 1000; ++i)
    survives(scratch / "n.npy", with(whole, chance() % whole.size(), raw(static_cast<uint8_t>(chance()))));
  for (int i = 0; i < 1000; ++i) {
    write_text(scratch / "m.idx", with(idx, chance() % idx.size(), raw(static_cast<uint8_t>(chance()))));
    survives(scratch / "m.bin", good);
  }
}
