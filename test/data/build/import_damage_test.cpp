// Damaged files of llm.c's, Megatron-LM's and NumPy's tokens: each is refused with its name and what is wrong.
#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "base/error.h"
#include "data/build/import.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/data/token_files.h"

using namespace trireme;

namespace {

const std::vector<int32_t> kFour{1, 2, 3, 4};
const std::string kGood = as<uint16_t>(kFour), kIndex = index_of(8, 2, {{1, 2}, {3, 4}}), kArray = npy("<u2", "(4,)", kGood);

struct Damaged {
  std::string bytes;
  const char* message;
};

std::string with(std::string bytes, size_t at, const std::string& put) { return bytes.replace(at, put.size(), put); }

// Writes each to `path`; what imports `opened` must say so, of this file.
void check_refused(const Scratch& scratch, const std::string& name, const std::string& opened, const std::vector<Damaged>& all) {
  std::set<std::string> distinct;
  for (const auto& [bytes, message] : all) {
    INFO(name << ": " << message);
    CHECK(distinct.insert(bytes).second);
    write_text(scratch / name, bytes);
    const ImportOptions options{.inputs = {scratch / opened}, .output = scratch / "out"};
    const auto tokenizer = make_byte_tokenizer();
    std::string said;
    try {
      import_shards(options, *tokenizer, [](const BuildProgress&) {});
    } catch (const DataError& e) {
      said = e.what();
    }
    CHECK_THAT(said, ContainsSubstring(message));
    const bool tokens = name != opened && said.find(scratch / opened) != std::string::npos;  // an index that is of other tokens
    CHECK((tokens || said.find(scratch / name) != std::string::npos));
  }
  CHECK(distinct.size() >= 30);
  CHECK_FALSE(std::filesystem::exists(scratch / "out/train-00000.h5"));
}

void read_all(const std::string& path, TokenFormat format = TokenFormat::automatic) {
  TokenFile file(path, format);
  while (!file.next(3).empty()) {
  }
}

// Every cut is reported; bytes changed anywhere are reported or give tokens.
void check_cuts_and_changes(const std::string& path, const std::string& bytes, const std::string& opened) {
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    write_text(path, bytes.substr(0, cut));
    CHECK_THROWS_AS(TokenFile(opened), DataError);
  }
  std::mt19937 chance(11);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const size_t front = chance() % 2 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 16);  // half of them among the first
    write_text(path, with(bytes, chance() % front, raw(static_cast<uint8_t>(chance()))));
    try {
      read_all(opened);
    } catch (const DataError&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
  write_text(path, bytes);
  CHECK(TokenFile(opened).tokens() == 4);
}

}  // namespace

TEST_CASE("damaged files of llm.c's tokens are refused with what is wrong") {
  const Scratch scratch;
  const std::string whole = llmc(20240520, 1, 4, kGood);
  check_refused(scratch, "l.bin", "l.bin",
                {
                    {"",
                     "l.bin: 0 bytes are too few for llm.c's header; for tokens without a header, as nanoGPT writes them, give "
                     "--format raw16 or raw32"},
                    {whole.substr(0, 4), "4 bytes are too few for llm.c\'s header"},
                    {kGood, "8 bytes are too few for llm.c\'s header"},
                    {kArray, "bytes are too few for llm.c's header"},
                    {std::string(1023, 'x'), "1023 bytes are too few for llm.c\'s header"},
                    {std::string(1024, '\0'), "does not begin as llm.c's tokens do"},
                    {std::string(2000, '\0'), "does not begin as llm.c's tokens do"},
                    {std::string(2000, 'a'), "does not begin as llm.c's tokens do"},
                    {"\x1f\x8b" + whole, "does not begin as llm.c's tokens do"},
                    {"x" + whole, "does not begin as llm.c's tokens do"},
                    {whole.substr(1), "does not begin as llm.c's tokens do"},
                    {llmc(20240521, 1, 4, kGood), "but with 20240521, 1"},
                    {llmc(-20240520, 1, 4, kGood), "but with -20240520, 1"},
                    {llmc(static_cast<int32_t>(__builtin_bswap32(20240520)), 1 << 24, 4 << 24, kGood), ", 16777216"},
                    {llmc(20240520, 0, 4, kGood), "but with 20240520, 0"},
                    {llmc(20240520, -1, 4, kGood), "but with 20240520, -1"},
                    {llmc(20240520, 2, 4, kGood), "but with 20240520, 2"},
                    {llmc(20240520, 7, 4, kGood), "but with 20240520, 7"},
                    {llmc(20240801, 1, 4, as<uint32_t>(kFour)), "but with 20240801, 1"},
                    {llmc(20240520, 1, 0, kGood), "its header says 0 tokens of 2 bytes, the file has 8 bytes"},
                    {llmc(20240520, 1, 5, kGood), "its header says 5 tokens of 2 bytes, the file has 8 bytes"},
                    {llmc(20240520, 1, 3, kGood), "its header says 3 tokens of 2 bytes, the file has 8 bytes"},
                    {llmc(20240520, 1, -4, kGood), "its header says -4 tokens"},
                    {llmc(20240520, 1, INT32_MIN, kGood), "its header says -2147483648 tokens"},
                    {llmc(20240520, 1, INT32_MAX, kGood), "says 2147483647 tokens"},
                    {llmc(20240520, 1, 4 << 24, kGood), "says 67108864 tokens"},
                    {llmc(20240801, 7, 4, kGood), "its header says 4 tokens of 4 bytes, the file has 8 bytes"},
                    {llmc(20240801, 7, 3, as<uint32_t>(kFour)), "its header says 3 tokens of 4 bytes, the file has 16 bytes"},
                    {llmc(20240520, 1, 4, as<uint32_t>(kFour)), "its header says 4 tokens of 2 bytes, the file has 16 bytes"},
                    {llmc(20240520, 1, 4, kGood + "x"), "the file has 9 bytes"},
                    {llmc(20240520, 1, 4, kGood.substr(1)), "the file has 7 bytes"},
                    {llmc(20240520, 1, 4, ""), "the file has 0 bytes"},
                    {llmc(20240520, 1, 4, whole), "the file has 1032 bytes"},
                    {llmc(20240520, 1, 4, as<uint16_t>({1, 2, 300, 4})), "token 2 is 300, the tokenizer has 257 entries"},
                    {llmc(20240520, 1, 4, as<uint16_t>({65535, 2, 3, 4})), "token 0 is 65535, the tokenizer has 257 entries"},
                    {llmc(20240801, 7, 4, as<uint32_t>({1, 2, 3, -1})), "token 3 is 4294967295"},
                    {llmc(20240801, 7, 4, as<uint32_t>({1, INT32_MIN, 3, 4})), "token 1 is 2147483648"},
                });
  check_cuts_and_changes(scratch / "l.bin", whole, scratch / "l.bin");
}

TEST_CASE("damaged indices of Megatron's are refused with what is wrong") {
  const Scratch scratch;
  const std::string& idx = kIndex;
  write_text(scratch / "m.bin", kGood);
  check_refused(
      scratch, "m.idx", "m.bin",
      {
          {"", "is cut off"},
          {idx.substr(0, 8), "is cut off"},
          {idx.substr(0, 12), "is cut off"},
          {kGood + kGood, "does not begin as Megatron's indices do"},
          {with(idx, 0, "X"), "does not begin as Megatron's indices do"},
          {with(idx, 8, "1"), "does not begin as Megatron's indices do"},
          {idx.substr(1), "does not begin as Megatron's indices do"},
          {with(idx, 9, raw(uint64_t{0})), "is of version 0, 1 is read"},
          {with(idx, 9, raw(uint64_t{2})), "is of version 2, 1 is read"},
          {with(idx, 9, raw(uint64_t{1} << 56)), "is of version 72057594037927936, 1 is read"},
          {with(idx, 17, raw(uint8_t{0})), "type 0 is none of tokens"},
          {with(idx, 17, raw(uint8_t{6})), "type 6 is none of tokens"},
          {with(idx, 17, raw(uint8_t{7})), "type 7 is none of tokens"},
          {with(idx, 17, raw(uint8_t{255})), "type 255 is none of tokens"},
          {with(idx, 17, raw(uint8_t{1})), "sequence 1 begins at byte 4, the one before it ends at 2"},
          {with(idx, 17, raw(uint8_t{4})), "sequence 1 begins at byte 4, the one before it ends at 8"},
          {with(idx, 17, raw(uint8_t{5})), "sequence 1 begins at byte 4, the one before it ends at 16"},
          {with(idx, 18, raw(UINT64_MAX)), "has no room for 18446744073709551615 numbers"},
          {with(idx, 18, raw(uint64_t{1} << 61)), "has no room for"},
          {with(idx, 18, raw(uint64_t{1} << 62)), "has no room for"},
          {with(idx, 18, raw(uint64_t{3})), "is cut off"},
          {with(idx, 18, raw(uint64_t{1})), "bytes too many"},
          {with(idx, 26, raw(UINT64_MAX)), "has no room for 18446744073709551615 numbers"},
          {with(idx, 26, raw(uint64_t{4})), "has no room for 4 numbers"},
          {with(idx, 26, raw(uint64_t{0})), "has 24 bytes too many after its documents"},
          {with(idx, 26, raw(uint64_t{2})), "has 8 bytes too many after its documents"},
          {with(idx, 26, raw(uint64_t{2})).substr(0, idx.size() - 8), "do not begin with the first sequence and end with the last"},
          {with(idx, 26, raw(uint64_t{0})).substr(0, idx.size() - 24), "do not begin with the first sequence"},
          {with(idx, 34, raw(int32_t{-1})), "sequence 0 is of -1 tokens"},
          {with(idx, 34, raw(INT32_MIN)), "sequence 0 is of -2147483648 tokens"},
          {with(idx, 34, raw(int32_t{3})), "sequence 1 begins at byte 4, the one before it ends at 6"},
          {with(idx, 38, raw(int32_t{3})), "its index says 5 tokens of 2 bytes, the file has 8 bytes"},
          {with(idx, 38, raw(int32_t{0})), "its index says 2 tokens of 2 bytes, the file has 8 bytes"},
          {with(idx, 38, raw(INT32_MAX)), "its index says"},
          {with(idx, 42, raw(int64_t{2})), "sequence 0 begins at byte 2, the one before it ends at 0"},
          {with(idx, 50, raw(int64_t{-4})), "sequence 1 begins at byte -4"},
          {with(idx, 50, raw(INT64_MAX)), "sequence 1 begins at byte 9223372036854775807"},
          {with(idx, 58, raw(int64_t{1})), "its documents do not begin with the first sequence"},
          {with(idx, 66, raw(int64_t{9})), "document 1 ends before it begins"},
          {with(idx, 66, raw(int64_t{-1})), "document 0 ends before it begins"},
          {with(idx, 74, raw(int64_t{3})), "its documents do not begin with the first sequence and end with the last"},
          {with(idx, 74, raw(INT64_MIN)), "its documents do not begin with the first sequence and end with the last"},
          {idx.substr(0, idx.size() - 1), "has no room for 3 numbers"},
          {idx + '\0', "has 1 bytes too many after its documents"},
          {idx + idx, "has 82 bytes too many after its documents"},
      });
  check_cuts_and_changes(scratch / "m.idx", kIndex, scratch / "m.bin");
}

TEST_CASE("damaged tokens of Megatron's are refused with what is wrong") {
  const Scratch scratch;
  const auto check = [&](const std::string& index, const std::string& bytes, const char* message) {
    write_text(scratch / "m.idx", index);
    write_text(scratch / "m.bin", bytes);
    CHECK_THROWS_WITH(import_shards({.inputs = {scratch / "m.bin"}, .output = scratch / "out"}, *make_byte_tokenizer(),
                                    [](const BuildProgress&) {}),
                      ContainsSubstring(message) && ContainsSubstring("m.bin"));
  };
  for (size_t bytes = 0; bytes < 20; ++bytes)
    if (bytes != 8) {
      const std::string message = "its index says 4 tokens of 2 bytes, the file has " + std::to_string(bytes) + " bytes";
      check(kIndex, (kGood + kGood + kGood).substr(0, bytes), message.c_str());
    }
  for (const int32_t token : {257, 300, 4096, 32768, 65535}) check(kIndex, as<uint16_t>({1, 2, token, 4}), "token 2 is");
  for (const int32_t token : {-1, -32768}) check(index_of(3, 2, {{1, 2}, {3, 4}}), as<int16_t>({token, 2, 3, 4}), "token 0 is -");
  for (const int64_t token : {int64_t{-1}, int64_t{1} << 31, INT64_MAX, INT64_MIN})
    check(index_of(5, 8, {{1, 2}, {3, 4}}), raw(std::vector<int64_t>{1, 2, 3, token}), "token 3 is");
}

TEST_CASE("damaged arrays of NumPy's are refused with what is wrong") {
  const Scratch scratch;
  const std::string& whole = kArray;
  const auto typed = [](const std::string& type) { return npy(type, "(4,)", kGood); };
  const auto shaped = [](const std::string& shape) { return npy("<u2", shape, kGood); };
  check_refused(scratch, "n.npy", "n.npy",
                {
                    {"", "does not begin as NumPy's arrays do"},
                    {"\x93NUM", "does not begin as NumPy's arrays do"},
                    {"\x93NUMPX" + whole.substr(6), "does not begin as NumPy's arrays do"},
                    {whole.substr(1), "does not begin as NumPy's arrays do"},
                    {"PK\3\4" + whole, "does not begin as NumPy's arrays do"},
                    {with(whole, 6, std::string(1, '\0')), "does not begin as NumPy's arrays do"},
                    {with(whole, 6, std::string(1, '\4')), "does not begin as NumPy's arrays do"},
                    {with(whole, 6, "\xff"), "does not begin as NumPy's arrays do"},
                    {with(whole, 6, std::string(1, '\2')), "is cut off in its header"},
                    {whole.substr(0, 9), "is cut off in its header"},
                    {whole.substr(0, 60), "is cut off in its header"},
                    {with(whole, 8, "\xff\xff"), "is cut off in its header"},
                    {with(whole, 8, std::string(2, '\0')), "is an array of , tokens are"},
                    {with(whole, 12, "DESCR"), "is an array of , tokens are"},
                    {typed("<f4"), "is an array of '<f4', tokens are"},
                    {typed("<f2"), "is an array of '<f2', tokens are"},
                    {typed(">u2"), "is an array of '>u2', tokens are"},
                    {typed("|b1"), "is an array of '|b1', tokens are"},
                    {typed("<i3"), "is an array of '<i3', tokens are"},
                    {typed("|O"), "is an array of '|O', tokens are"},
                    {typed("<U2"), "is an array of '<U2', tokens are"},
                    {typed("<u2 "), "is an array of '<u2 ', tokens are"},
                    {shaped("(2, 2)"), "is an array of shape (2, 2), tokens are flat"},
                    {shaped("()"), "is an array of shape (), tokens are flat"},
                    {shaped("(-4,)"), "is an array of shape (-4,), tokens are flat"},
                    {shaped("(+4,)"), "is an array of shape (+4,), tokens are flat"},
                    {shaped("(04,)"), "is an array of shape (04,), tokens are flat"},
                    {shaped("(4)"), "is an array of shape (4), tokens are flat"},
                    {shaped("4"), "is an array of shape 4, tokens are flat"},
                    {shaped("(4"), "tokens are flat"},
                    {shaped("(4.0,)"), "tokens are flat"},
                    {shaped("(9999999999999999999999,)"), "tokens are flat"},
                    {shaped("(0,)"), "its header says 0 tokens of 2 bytes, the file has 8 bytes"},
                    {shaped("(5,)"), "its header says 5 tokens of 2 bytes, the file has 8 bytes"},
                    {shaped("(3,)"), "its header says 3 tokens"},
                    {shaped("(999999999999999999,)"), "its header says 999999999999999999 tokens"},
                    {typed("<u4"), "its header says 4 tokens of 4 bytes"},
                    {typed("|u1"), "its header says 4 tokens of 1 bytes"},
                    {whole + "x", "the file has 9 bytes"},
                    {whole + whole, "the file has 144 bytes"},
                    {whole.substr(0, whole.size() - 1), "the file has 7 bytes"},
                    {npy("<i2", "(4,)", as<int16_t>({1, -2, 3, 4})), "token 1 is -2"},
                    {npy("<i8", "(1,)", raw(int64_t{1} << 31)), "token 0 is 2147483648"},
                    {npy("<u8", "(1,)", raw(UINT64_MAX)), "token 0 is"},
                    {npy("<u2", "(4,)", as<uint16_t>({1, 2, 3, 257})), "token 3 is 257, the tokenizer has 257 entries"},
                });
  check_cuts_and_changes(scratch / "n.npy", whole, scratch / "n.npy");
}
