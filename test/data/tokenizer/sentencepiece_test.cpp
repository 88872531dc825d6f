#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "data/build/build.h"
#include "data/text/text_file.h"
#include "data/tokenizer/tokenizer_sentencepiece.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// A golden's model: "llama2" is BPE with bytes for what it does not know, of characters as they are; "unigram" brings them into
// NFKC, makes one space of many, and has no bytes.
std::string model_file(const std::string& name) {
  TextFile packed(std::string(TRIREME_SOURCE) + "/test/data/goldens/" + name + ".model.gz");
  std::string bytes(1 << 20, '\0');
  size_t size = 0;
  while (!packed.ended()) size += static_cast<size_t>(packed.read(bytes.data() + size, static_cast<int64_t>(bytes.size() - size)));
  bytes.resize(size);
  return bytes;
}

std::unique_ptr<Tokenizer> parsed(const std::string& bytes, const std::string& name = "m.model") {
  return make_sentencepiece_tokenizer(parse_sentencepiece_model(bytes, name), name);
}
std::unique_ptr<Tokenizer> golden(const std::string& name) { return parsed(model_file(name)); }

std::string repeated(const std::string& unit, int64_t times) {
  std::string all;
  for (int64_t i = 0; i < times; ++i) all += unit;
  return all;
}

// Words of several scripts, runs of spaces, lines, bytes of UTF-8 that few models know.
std::string random_words(uint64_t key, size_t count) {
  const std::vector<std::string> parts{"the",    " of",      "  ",   " ",       "\n",
                                       "\n\n  ", "\t",       "oars", " rowing", "2024",
                                       "it's",   "\xc3\xa9", " caf", "x",       "\xe4\xbd\xa0\xe5\xa5\xbd",
                                       ", ",     ".",        "!!",   " int",    "\xf0\x9f\x98\x80",
                                       "<tool>", "A",        "/",    "@",       "r\xcc\x87",
                                       "^",      "~ "};
  std::string all;
  for (size_t i = 0; i < count; ++i) all += parts[philox64(key, i) % parts.size()];
  return all;
}

// Protocol buffers, as far as models need them.
std::string bytes_field(int number, const std::string& bytes) {
  std::string field{static_cast<char>(number << 3 | 2)};
  if (number > 15) field = {static_cast<char>((number << 3 | 2 | 128) & 255), static_cast<char>(number >> 4)};
  for (size_t size = bytes.size(); true; size >>= 7) {
    field += static_cast<char>((size & 127) | (size > 127 ? 128 : 0));
    if (size <= 127) return field + bytes;
  }
}
std::string number_field(int number, uint8_t value) {
  if (number <= 15) return {static_cast<char>(number << 3), static_cast<char>(value)};
  return {static_cast<char>((number << 3 | 128) & 255), static_cast<char>(number >> 4), static_cast<char>(value)};
}
std::string piece(const std::string& written, uint8_t kind, const std::string& score = std::string(4, '\0')) {
  return bytes_field(1, bytes_field(1, written) + std::string{0x15} + score + number_field(3, kind));
}
const std::string kPieces = piece("<unk>", 2) + piece("</s>", 3) + piece("a", 1) + piece("\xe2\x96\x81", 1);

std::string refusal_of_model(const std::string& bytes) {
  try {
    parsed(bytes);
    return "accepted";
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("SentencePiece's models give the ids and texts of its own library") {
  for (const std::string name : {"llama2", "unigram"}) {
    const auto tokenizer = golden(name);
    const auto cases = Json::parse(read_text(std::string(TRIREME_SOURCE) + "/test/data/goldens/" + name + "_cases.json"));
    REQUIRE(cases.size() > 140);
    for (const auto& entry : cases) {
      if (entry.contains("unit")) {
        const auto tokens = tokenizer->encode(repeated(entry["unit"].get<std::string>(), entry["times"].get<int64_t>()));
        int64_t sum = 0;
        for (int64_t i = 0; i < std::ssize(tokens); ++i) sum += (i % 1000 + 1) * tokens[static_cast<size_t>(i)];
        INFO(name << ": " << entry);
        CHECK(std::ssize(tokens) == entry["count"].get<int64_t>());
        CHECK(sum == entry["sum"].get<int64_t>());
        continue;
      }
      const auto text = entry["text"].get<std::string>();
      INFO(name << ": " << text);
      const auto tokens = tokenizer->encode(text);
      CHECK(tokens == entry["tokens"].get<std::vector<int32_t>>());
      CHECK(tokenizer->decode(tokens) == entry["decoded"].get<std::string>());
      if (name == "llama2" && text.find(SentencePieceModel::kSpace) == std::string::npos) CHECK(tokenizer->decode(tokens) == text);
    }
  }
}

TEST_CASE("of SentencePiece's symbols only the user's are found in text") {
  const auto tokenizer = golden("llama2");
  CHECK(tokenizer->end_of_document() == 2);
  CHECK(tokenizer->vocab_size() == 1000);
  for (const std::string text : {"</s>", "a</s>", "<s>", "<unk>", "<0x0A>"})
    for (const int32_t token : tokenizer->encode(text)) CHECK(token > 2 + 2 + 256);
  const auto tokens = tokenizer->encode("<tool>");
  CHECK(tokens.back() == 3);
  CHECK(tokenizer->decode(tokens) == "<tool>");
}

TEST_CASE("a space in front of a text is dropped as SentencePiece drops it, and bytes stay bytes") {
  const auto bpe = golden("llama2"), unigram = golden("unigram");
  const auto the = bpe->encode("the");
  REQUIRE(the.size() == 1);
  const int32_t space = bpe->encode("\n")[0], bytes = 5;  // bytes: id of <0x00>
  CHECK(bpe->bytes_of(the[0]) == " the");
  CHECK(bpe->decode(the) == "the");
  CHECK(bpe->decode(std::vector<int32_t>{1, the[0], the[0]}) == "the the");
  CHECK(bpe->decode(std::vector<int32_t>{space, space, space}) == "  ");
  CHECK(bpe->decode(std::vector<int32_t>{bytes + ' ', the[0]}) == "  the");
  CHECK(bpe->decode(std::vector<int32_t>{bytes + 0xff}) == "\xff");
  CHECK(bpe->decode(std::vector<int32_t>{0, the[0]}) == " \xe2\x81\x87  the");
  CHECK(bpe->decode(bpe->encode("a\xff")) == "a\xef\xbf\xbd");
  const auto single = unigram->encode("x");
  REQUIRE(single.size() == 2);  // a space, x
  CHECK(unigram->decode(std::vector<int32_t>{single[0], single[0], single[1], single[0]}) == "x ");
}

TEST_CASE("SentencePiece: a text in two parts has the tokens of the whole") {
  for (const std::string name : {"llama2", "unigram"}) {
    const auto tokenizer = golden(name);
    int cuts = 0;
    for (uint64_t key = 0; key < 20; ++key) {
      const std::string text = random_words(key, 120);
      const auto whole = tokenizer->encode(text);
      for (size_t limit = 40; limit < text.size(); limit += 7) {
        const size_t at = tokenizer->last_cut(text, limit);
        REQUIRE(at > 0);
        REQUIRE(at <= limit);
        auto tokens = tokenizer->encode(std::string_view(text).substr(0, at));
        tokenizer->encode_rest(std::string_view(text).substr(at), tokens);
        INFO(name << ", " << at << " of " << text);
        CHECK(tokens == whole);
        ++cuts;
      }
    }
    CHECK(cuts > 500);
    CHECK(tokenizer->last_cut("\xe4\xbd\xa0\xe5\xa5\xbd", 4) == 0);
  }
}

TEST_CASE("shards of a SentencePiece model count the bytes of the text, and a long document is encoded as one") {
  const Scratch scratch;
  std::string text;
  for (uint64_t key = 0; text.size() < Documents::kLongestPassage + 300000; ++key) text += random_words(key, 2000);
  write_text(scratch / "a.txt", text);
  write_text(scratch / "b.txt", "the oars");
  const auto tokenizer = golden("llama2");
  const auto summary = build_shards({.inputs = {scratch.path()}, .validation_inputs = {}, .output = scratch / "out"}, *tokenizer,
                                    [](const BuildProgress&) {});
  CHECK(summary.train.text_bytes == std::ssize(text) + 8);
  const ShardReader shard(summary.train.shards.at(0));
  std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens())), expected = tokenizer->encode(text);
  shard.read(0, tokens);
  expected.push_back(2);
  tokenizer->encode("the oars", expected);
  expected.push_back(2);
  CHECK(tokens == expected);
}

TEST_CASE("several threads encode with one SentencePiece model at once") {
  for (const std::string name : {"llama2", "unigram"}) {
    const auto tokenizer = golden(name);
    const std::string text = random_words(3, 3000);
    const auto expected = tokenizer->encode(text);
    std::vector<int> wrong(4, 0);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) wrong[t] += tokenizer->encode(text) == expected ? 0 : 1;
      });
    for (auto& thread : threads) thread.join();
    CHECK(wrong == std::vector<int>(4, 0));
  }
}

TEST_CASE("damaged SentencePiece models are refused, or are models") {
  for (const std::string name : {"llama2", "unigram"}) {
    const std::string good = model_file(name);
    const uint64_t rounds = name == "llama2" ? 400 : 60;
    for (uint64_t key = 0; key < rounds; ++key) {
      std::string bad = good;
      if (key % 4 == 0) bad.resize(philox64(key, 0) % good.size());
      for (uint64_t i = 0; key % 4 != 0 && i < 1 + key % 3; ++i)
        bad[philox64(key, 2 * i) % good.size()] = static_cast<char>(philox64(key, 2 * i + 1));
      try {
        const auto tokenizer = parsed(bad);
        tokenizer->decode(tokenizer->encode(random_words(key, 50)));
      } catch (const DataError& error) {
        CHECK_THAT(error.what(), Catch::Matchers::StartsWith("m.model: "));
      }
    }
  }
}

TEST_CASE("anything but a supported SentencePiece model is refused by name") {
  CHECK(refusal_of_model(kPieces) == "accepted");
  CHECK_THAT(refusal_of_model(""), ContainsSubstring("m.model: is not a SentencePiece model"));
  CHECK_THAT(refusal_of_model("{\"model\": 1}"), ContainsSubstring("is not a SentencePiece model"));
  CHECK_THAT(refusal_of_model(kPieces + "\n\xff"), ContainsSubstring("damaged"));
  CHECK_THAT(refusal_of_model(kPieces + number_field(1, 1)), ContainsSubstring("field 1 is of another kind"));
  CHECK_THAT(refusal_of_model(piece("<unk>", 2) + piece("a", 1)),
             ContainsSubstring("no control symbol '</s>'") && ContainsSubstring("eos_id"));
  CHECK_THAT(refusal_of_model(kPieces + piece("b", 1, std::string("\0\0\xc0\x7f", 4))),
             ContainsSubstring("piece 4 has a score of nan"));
  CHECK_THAT(refusal_of_model(kPieces + piece("b", 9)), ContainsSubstring("piece 4 is of kind 9"));
  CHECK_THAT(refusal_of_model(kPieces + piece("\xff", 1)), ContainsSubstring("piece 4 is not text"));
  CHECK_THAT(refusal_of_model(kPieces + piece("a", 1)), ContainsSubstring("m.model: SentencePiece cannot use it"));
  CHECK_THAT(refusal_of_model(kPieces + piece("<0xZZ>", 6)), ContainsSubstring("'<0xZZ>' is not a byte"));
  CHECK_THAT(refusal_of_model(kPieces + bytes_field(2, number_field(3, 3))), ContainsSubstring("model_type is word"));
  CHECK_THAT(refusal_of_model(kPieces + bytes_field(2, number_field(24, 1))), ContainsSubstring("treat_whitespace_as_suffix"));
  CHECK_THAT(refusal_of_model(kPieces + bytes_field(3, number_field(5, 0))), ContainsSubstring("escape_whitespaces"));
  CHECK_THAT(refusal_of_model(kPieces + bytes_field(5, bytes_field(2, "rules"))), ContainsSubstring("denormalizer_spec"));
  const std::string outside = std::string{0, 4, 0, 0} + std::string(1022, '\xff') + std::string(4, '\0');
  CHECK_THAT(refusal_of_model(kPieces + bytes_field(3, bytes_field(2, outside))),
             ContainsSubstring("rules of normalisation are damaged"));
  CHECK_THAT(refusal_of_model(kPieces + bytes_field(3, bytes_field(2, "abc"))),
             ContainsSubstring("rules of normalisation are damaged"));
}
