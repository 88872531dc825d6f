// Special tokens beside the end of a document: asked for in training, written into tokenizer.json, never made from text.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "data/build/tokenizer_train.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const std::string kText = "<|user|>the cat sat on the mat<|end|> <|user|>the cat's hat was on the mat<|end|> the the the cat\n";

Bpe train_with_special(const std::string& path, std::vector<std::string> special, int64_t vocab = 290,
                       const std::string& pattern = "gpt2") {
  return train_tokenizer({.inputs = {path}, .vocab = vocab, .pattern = pattern, .special = std::move(special)},
                         [](const TokenizerProgress&) {})
      .bpe;
}

}  // namespace

TEST_CASE("special tokens come after end of document, in their order, and do not change what is learnt") {
  const Scratch scratch;
  write_text(scratch / "text", kText);
  const Bpe plain = train_with_special(scratch / "text", {}, 288);
  const Bpe bpe = train_with_special(scratch / "text", {"<|user|>", "[PAD]"});
  CHECK(bpe.merges == plain.merges);
  CHECK(bpe.end_of_document == plain.end_of_document);
  CHECK(bpe.tokens.size() == plain.tokens.size() + 2);
  const int32_t end = bpe.end_of_document;
  CHECK(bpe.special == std::vector<std::pair<int32_t, std::string>>{{end, kEndOfText}, {end + 1, "<|user|>"}, {end + 2, "[PAD]"}});

  const auto tokenizer = make_bpe_tokenizer(bpe);
  const std::vector<int32_t> tokens = tokenizer->encode(kText + "[PAD]");
  CHECK(std::ranges::none_of(tokens, [&](int32_t token) { return token >= end; }));
  CHECK(tokenizer->decode(tokens) == kText + "[PAD]");
  CHECK(tokenizer->decode(std::vector<int32_t>{'a', end + 1, 'b', end + 2}) == "ab");
}

TEST_CASE("tokenizer.json marks special tokens so, and they read back") {
  const Scratch scratch;
  write_text(scratch / "text", kText);
  const Bpe bpe = train_with_special(scratch / "text", {"<|user|>", "</s>"});
  save_tokenizer_json(bpe, scratch / "tokenizer.json");
  const auto json = Json::parse(read_text(scratch / "tokenizer.json"));
  const std::vector<std::string> written{kEndOfText, "<|user|>", "</s>"};
  REQUIRE(json["added_tokens"].size() == written.size());
  for (size_t i = 0; i < written.size(); ++i) {
    const auto& entry = json["added_tokens"][i];
    CHECK(entry["content"] == written[i]);
    CHECK(entry["id"] == bpe.end_of_document + static_cast<int32_t>(i));
    CHECK(entry["special"] == true);
    CHECK(json["model"]["vocab"][written[i]] == entry["id"]);
  }
  const Bpe again = read_tokenizer_json(scratch / "tokenizer.json");
  CHECK(again.special == bpe.special);
  CHECK(again.end_of_document == bpe.end_of_document);
  CHECK(make_bpe_tokenizer(again)->fingerprint() == make_bpe_tokenizer(bpe)->fingerprint());
}

TEST_CASE("what cannot be a special token is refused before anything is read") {
  const auto refused = [](std::vector<std::string> special, int64_t vocab = 290,
                          const std::string& pattern = "gpt2") -> std::string {
    try {
      train_with_special("/no/such/text", std::move(special), vocab, pattern);
    } catch (const ConfigError& error) {
      return error.what();
    } catch (const DataError&) {
      return "accepted";
    }
    return "trained";
  };
  CHECK(refused({"<|user|>", "<|a b|>", "[SEP]", "<\xc3\xa9>"}) == "accepted");
  CHECK_THAT(refused({""}), ContainsSubstring("special token ''"));
  CHECK_THAT(refused({"<\xff>"}), ContainsSubstring("must be text in UTF-8"));
  CHECK_THAT(refused({kEndOfText}), ContainsSubstring("'<|endoftext|>': is there already"));
  CHECK_THAT(refused({"<x>", "<y>", "<x>"}), ContainsSubstring("'<x>': is there already"));
  CHECK_THAT(refused({"user"}), ContainsSubstring("is a word that texts could give") && ContainsSubstring("<|user|>"));
  CHECK_THAT(refused({"###"}), ContainsSubstring("is a word that texts could give"));
  CHECK(refused({"_user"}) == "accepted");
  CHECK_THAT(refused({"_user"}, 290, "llama3"), ContainsSubstring("is a word that texts could give"));
  CHECK(refused({"<a>", "<b>"}, 259) == "accepted");
  CHECK_THAT(refused({"<a>", "<b>"}, 258), ContainsSubstring("258 entries: 259 (the bytes and the special tokens) to"));
}

TEST_CASE("a tokenizer learns from a sample of texts above the limit, and reports how much of how much") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += Json{{"text", std::to_string(i) + " " + kText}}.dump() + "\n";
  write_text(scratch / "a.jsonl", lines);
  const auto train = [&](int64_t limit) {
    return train_tokenizer({.inputs = {scratch / "a.jsonl"}, .vocab = 300, .text_limit = limit}, [](const TokenizerProgress&) {});
  };
  const TokenizerResult all = train(1 << 30), some = train(100'000);
  CHECK(all.text_bytes == all.all_text_bytes);
  CHECK(all.all_text_bytes > 400'000);
  CHECK(some.all_text_bytes == all.all_text_bytes);
  CHECK(std::abs(some.text_bytes - 100'000) < 10'000);
  CHECK(std::abs(some.documents * all.text_bytes / some.text_bytes - all.documents) < 10);
}

TEST_CASE("of standard input a tokenizer learns from the first texts up to the limit, and says so") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += Json{{"text", std::to_string(1000 + i) + " " + kText}}.dump() + "\n";
  write_text(scratch / "a.jsonl", lines);
  const int64_t each = 5 + std::ssize(kText);
  const int before = dup(0);
  const auto train = [&](int64_t limit) {
    const int file = open((scratch / "a.jsonl").c_str(), O_RDONLY);
    dup2(file, 0);
    close(file);
    return train_tokenizer({.inputs = {"-"}, .vocab = 300, .documents = {.stdin_name = "stdin.jsonl"}, .text_limit = limit},
                           [](const TokenizerProgress&) {});
  };
  const TokenizerResult all = train(4000 * each), some = train(100 * each - 1);
  dup2(before, 0);
  close(before);
  CHECK(all.documents == 4000);
  CHECK(all.problems.empty());
  CHECK(some.documents == 100);
  CHECK(some.text_bytes == 100 * each);
  CHECK(some.all_text_bytes == some.text_bytes);  // the rest is not known
  CHECK(some.skipped == 0);
  REQUIRE(some.problems.size() == 1);
  CHECK_THAT(some.problems[0], ContainsSubstring("standard input: the first " + std::to_string(100 * each) + " bytes"));
}

TEST_CASE("files are sampled evenly beside standard input, too, and its first texts are counted besides") {
  const Scratch scratch;
  const auto write = [&](const char* name, int first, int count) {
    std::string lines;
    for (int i = first; i < first + count; ++i) lines += Json{{"text", std::to_string(i) + " " + kText}}.dump() + "\n";
    write_text(scratch / name, lines);
  };
  write("a.jsonl", 10000, 2000);
  write("b.jsonl", 20000, 2000);
  write("piped.jsonl", 30000, 1000);
  const int64_t each = 6 + std::ssize(kText);
  const int before = dup(0);
  const auto train = [&](std::vector<std::string> inputs, int64_t limit) {
    const int file = open((scratch / "piped.jsonl").c_str(), O_RDONLY);
    dup2(file, 0);
    close(file);
    return train_tokenizer(
        {.inputs = std::move(inputs), .vocab = 300, .documents = {.stdin_name = "stdin.jsonl"}, .text_limit = limit},
        [](const TokenizerProgress&) {});
  };
  const std::string a = scratch / "a.jsonl", b = scratch / "b.jsonl";
  const int64_t limit = 100 * each;
  const TokenizerResult files = train({a, b}, limit), both = train({a, "-", b}, limit), all = train({"-", a, b}, 4000 * each);
  dup2(before, 0);
  close(before);
  CHECK(files.documents < 200);
  CHECK(files.problems.empty());
  CHECK(both.documents == files.documents + 100);
  CHECK(both.text_bytes == files.text_bytes + limit);
  CHECK(both.all_text_bytes == 4000 * each + limit);
  REQUIRE(both.problems.size() == 1);
  CHECK_THAT(both.problems[0], ContainsSubstring("standard input: the first " + std::to_string(limit) + " bytes"));
  CHECK(all.documents == 5000);
  CHECK(all.problems.empty());
}
