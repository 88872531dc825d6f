// Mistakes of people and disks in inputs, and the message for each.
#include <xxhash.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "data/build/build.h"
#include "data/build/inspect.h"
#include "data/build/tokenizer_train.h"
#include "data/loader/corpus.h"
#include "data/shard/provenance.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_words.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

struct BadText {
  const char* name;
  std::string content, message;
};

struct BadTokenizer {
  const char* what;
  std::function<void(Json&)> damage;
  std::string message;
};

// Bytes; texts with the word "poison" are refused.
class RefusingTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    if (text.find("poison") != std::string_view::npos) throw DataError("t.json: the pattern x takes too long");
    bytes_->encode(text, tokens);
  }
  std::string_view bytes_of(int32_t token) const override { return bytes_->bytes_of(token); }
  int32_t vocab_size() const override { return bytes_->vocab_size(); }
  int32_t end_of_document() const override { return bytes_->end_of_document(); }
  std::string fingerprint() const override { return bytes_->fingerprint(); }

 private:
  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
};

// The message of the DataError that `act` throws.
template <class Act>
std::string refusal(Act&& act) {
  try {
    act();
  } catch (const DataError& error) {
    const std::string message = error.what();
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  return "accepted";
}

Json split_by(const std::string& pattern) {
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json split{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

Json good_tokenizer() {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, static_cast<char>(byte));
  bpe.tokens.emplace_back("ab");
  bpe.tokens.emplace_back();
  bpe.merges = {{'a', 'b'}};
  bpe.special = {{257, kEndOfText}};
  bpe.end_of_document = 257;
  return Json::parse(tokenizer_json(bpe));
}

// Changes a shard's header and makes its digest match again: only a look at the values can refuse it.
void forge_header(const std::string& path, const std::string& from, const std::string& to) {
  const std::string bytes = read_text(path);
  std::string block = bytes.substr(0, 4096);
  REQUIRE(block.find(from) != std::string::npos);
  block.replace(block.find(from), from.size(), to);
  block.resize(4096, '\0');
  const XXH64_hash_t digest = XXH3_64bits(block.data() + 33, 4096 - 33);
  for (size_t i = 0; i < 16; ++i) block[16 + i] = "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
  write_text(path, block + bytes.substr(4096));
}

}  // namespace

TEST_CASE("bad text is reported with file and line, skipped or fatal") {
  const std::vector<BadText> cases{
      {"a.txt", "fine\nthen \xff\n", "a.txt:2: is not UTF-8"},
      {"b.txt", "cut off \xe4\xbd", "b.txt:1: is not UTF-8"},
      {"j.jsonl", "[1, 2]\n{\"text\": \"y\"}", "j.jsonl:1: is not a JSON object"},
      {"c.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y\"\n", "c.jsonl:2: is not JSON"},
      {"d.jsonl", "\n\n[1, 2]\n", "d.jsonl: is not a file of JSON lines: line 3 is \"[1, 2]\""},
      {"e.jsonl", "{\"body\": \"x\"}", "e.jsonl:1: has no field 'text'"},
      {"f.jsonl", "{\"text\": 12}", "f.jsonl:1: field 'text' is not a string"},
      {"g.jsonl", "{\"text\": \"\xff\"}", "g.jsonl:1: is not JSON"},
      {"h.jsonl", "{\"text\": \"\\ud800\"}", "h.jsonl:1: is not JSON"},
      {"i.jsonl", std::string(100000, '['), "i.jsonl: is not a file of JSON lines: line 1 is \"[["},
  };
  const auto bytes = make_byte_tokenizer();
  for (const BadText& bad : cases) {
    INFO(bad.name);
    const Scratch scratch;
    write_text(scratch / bad.name, bad.content);
    write_text(scratch / "good.txt", "good");
    BuildOptions options{.inputs = {scratch / bad.name, scratch / "good.txt"}, .validation_inputs = {}, .output = scratch / "out"};
    const auto summary = build_shards(options, *bytes, [](const BuildProgress&) {});
    CHECK(summary.skipped == 1);
    REQUIRE(summary.problems.size() == 1);
    CHECK_THAT(summary.problems[0], ContainsSubstring(bad.message));
    options.documents.skip_bad = false;
    options.replace = true;
    CHECK_THAT(refusal([&] { build_shards(options, *bytes, [](const BuildProgress&) {}); }), ContainsSubstring(bad.message));
    CHECK(std::filesystem::exists(scratch / "out/train-00000.h5"));  // the earlier build is still there
  }
}

TEST_CASE("a document that the tokenizer refuses is reported with its line, skipped or fatal") {
  const Scratch scratch;
  write_text(scratch / "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"poison\"}\n{\"text\": \"two\"}\n");
  const RefusingTokenizer tokenizer;
  BuildOptions options{.inputs = {scratch / "a.jsonl"}, .validation_inputs = {}, .output = scratch / "out"};
  const BuildSummary summary = build_shards(options, tokenizer, [](const BuildProgress&) {});
  const std::string problem = scratch / "a.jsonl" + ":2: t.json: the pattern x takes too long";
  CHECK(summary.train.documents == 2);
  CHECK(summary.skipped == 1);
  CHECK(summary.problems == std::vector{problem});
  options.documents.skip_bad = false;
  options.replace = true;
  CHECK(refusal([&] { build_shards(options, tokenizer, [](const BuildProgress&) {}); }) ==
        problem + " (--on-error skip leaves such documents out and continues)");
}

TEST_CASE("a long text ends in front of a part that the tokenizer refuses, and the rest is a document of its own") {
  std::string words;
  while (words.size() < 700'000) words += "line " + std::to_string(words.size()) + "\n";
  std::vector<std::string> parts;  // as they are encoded
  for (std::string_view rest = words; !rest.empty(); rest.remove_prefix(parts.back().size())) {
    const bool last = rest.size() <= Documents::kUsualPassage;
    parts.emplace_back(rest.substr(0, last ? rest.size() : last_cut_between_words(rest, Documents::kUsualPassage)));
  }
  REQUIRE(parts.size() == 3);
  const size_t second = parts[0].size(), third = second + parts[1].size();
  const RefusingTokenizer tokenizer;
  struct Stop {};
  for (const size_t bad : {0, 1, 2}) {
    INFO("part " << bad << " is refused");
    const Scratch scratch;
    std::vector<std::string> left = parts;
    left[bad].replace(10, 6, "poison");
    write_text(scratch / "a.txt", left[0] + left[1] + left[2]);
    write_text(scratch / "b.txt", "tail");
    left.erase(left.begin() + static_cast<ptrdiff_t>(bad));
    BuildOptions options{.inputs = {scratch / "a.txt", scratch / "b.txt"},
                         .validation_inputs = {},
                         .output = scratch / "whole",
                         .keep_every = 0,
                         .batch_bytes = 1};
    const BuildSummary whole = build_shards(options, tokenizer, [](const BuildProgress&) {});
    CHECK(whole.train.documents == (bad == 1 ? 3 : 2));
    const std::string place = bad == 0 ? "" : ": from byte " + std::to_string(bad == 1 ? second : third);
    CHECK(whole.problems == std::vector{scratch / "a.txt" + place + ": t.json: the pattern x takes too long"});
    const ShardReader shard(whole.train.shards.at(0));
    std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
    shard.read(0, tokens);
    CHECK((tokenizer.decode(tokens) == left[0] + left[1] + "tail"));
    if (bad == 1) {
      CHECK(shard.document_starts()[1] == std::ssize(left[0]) + 1);
      CHECK(Provenance::read(shard).value().of(1) == DocumentSource{scratch / "a.txt", static_cast<int64_t>(third)});
    }
    options.output = scratch / "stopped";  // after the refused part
    size_t batches = 0;
    const auto stop = [&](const BuildProgress&) {
      if (batches++ == bad) throw Stop();
    };
    CHECK_THROWS_AS(build_shards(options, tokenizer, stop), Stop);
    bool resumed = false;
    const BuildSummary again = build_shards(
        options, tokenizer, [](const BuildProgress&) {}, [&] { resumed = true; });
    CHECK(resumed);
    CHECK(again.problems == whole.problems);
    CHECK((read_text(again.train.shards.at(0)) == read_text(whole.train.shards.at(0))));
  }
}

TEST_CASE("inputs that name nothing are refused") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "empty");
  write_text(scratch / "void.txt", "");
  const auto bytes = make_byte_tokenizer();
  const auto build = [&](const std::string& input, double fraction = 0) {
    return refusal([&] {
      build_shards({.inputs = {input}, .validation_inputs = {}, .validation_fraction = fraction, .output = scratch / "out"}, *bytes,
                   [](const BuildProgress&) {});
    });
  };
  CHECK_THAT(build(scratch / "none.txt"), ContainsSubstring("none.txt: no such file"));
  CHECK_THAT(build(scratch / "*.text"), ContainsSubstring("no file matches"));
  CHECK_THAT(build(scratch / "empty"), ContainsSubstring("no files under this directory"));
  CHECK_THAT(build(scratch / "void.txt"), ContainsSubstring("no document is left for training"));
  write_text(scratch / "one.txt", "one document");
  CHECK_THAT(build(scratch / "one.txt", 1e-9), ContainsSubstring("one.txt: is one document, and documents are held out whole"));
  CHECK_THAT(refusal([&] { train_tokenizer({.inputs = {scratch / "void.txt"}, .vocab = 300}, [](const TokenizerProgress&) {}); }),
             ContainsSubstring("no text to train"));
  CHECK_THROWS_AS(train_tokenizer({.inputs = {scratch / "one.txt"}, .vocab = 256}, [](const TokenizerProgress&) {}), ConfigError);
  CHECK_THROWS_AS(
      build_shards({.inputs = {scratch / "one.txt"}, .validation_inputs = {}, .validation_fraction = 1, .output = scratch / "out"},
                   *bytes, [](const BuildProgress&) {}),
      ConfigError);
}

TEST_CASE("bad tokenizer files are refused in one line") {
  const std::vector<BadTokenizer> cases{
      {"a list", [](Json& t) { t = Json::array(); }, "its JSON is not an object"},
      {"no model", [](Json& t) { t.erase("model"); }, "has no model"},
      {"another model", [](Json& t) { t["model"]["type"] = "WordPiece"; }, "model.type must be \"BPE\""},
      {"a model that is a list", [](Json& t) { t["model"] = Json::array(); }, "model.type must be \"BPE\""},
      {"a normalizer",
       [](Json& t) {
         t["normalizer"] = {{"type", "NFKC"}};
       },
       "normalizer {\"type\":\"NFKC\"} is not supported"},
      {"no pre-tokenizer", [](Json& t) { t["pre_tokenizer"] = nullptr; }, "has no pre_tokenizer"},
      {"another pre-tokenizer",
       [](Json& t) {
         t["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       "pre_tokenizer of type \"Whitespace\" is not supported"},
      {"a prefix space", [](Json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }, "add_prefix_space must be false"},
      {"a pattern that is none", [](Json& t) { t["pre_tokenizer"] = split_by("(?:"); },
       "the pattern (?: is not a regular expression"},
      {"a pattern that libraries read differently", [](Json& t) { t["pre_tokenizer"] = split_by("\\w+"); }, "has \\w"},
      {"a split that drops text",
       [](Json& t) {
         t["pre_tokenizer"] = split_by("a");
         t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
       },
       "behavior = \"Removed\" is not supported"},
      {"no bytes",
       [](Json& t) {
         t["pre_tokenizer"] = {{"type", "Digits"}};
       },
       "has no pre_tokenizer of type"},
      {"dropout", [](Json& t) { t["model"]["dropout"] = 0.1; }, "model.dropout = 0.1"},
      {"no added tokens", [](Json& t) { t.erase("added_tokens"); },
       "has none of the special tokens '<|endoftext|>', '<|end_of_text|>', '</s>'"},
      {"added tokens that are none", [](Json& t) { t["added_tokens"] = 7; }, "added_tokens is not a list"},
      {"an added token without id", [](Json& t) { t["added_tokens"][0].erase("id"); }, "has no added_tokens[].id"},
      {"no vocabulary", [](Json& t) { t["model"].erase("vocab"); }, "has no model.vocab"},
      {"a negative id", [](Json& t) { t["model"]["vocab"]["a"] = -1; }, "the id of token \"a\" is not an id"},
      {"an id that is a word", [](Json& t) { t["model"]["vocab"]["a"] = "b"; }, "the id of token \"a\" is not an id"},
      {"an id twice", [](Json& t) { t["model"]["vocab"]["a"] = 98; }, "two tokens have the id 98"},
      {"more gaps than tokens", [](Json& t) { t["model"]["vocab"]["ab"] = 1540; }, "has ids up to 1540 for 258 tokens"},
      {"a missing byte",
       [](Json& t) {
         t["model"]["vocab"].erase("q");
         t["model"]["vocab"]["qq"] = 'q';
       },
       "no token for byte 113"},
      {"a foreign letter", [](Json& t) { t["model"]["vocab"]["\xe4\xbd\xa0"] = 258; }, "not written in the byte alphabet"},
      {"a merge of strangers", [](Json& t) { t["model"]["merges"][0] = "a zz"; }, "joins \"a\" and \"zz\""},
      {"a merge of one", [](Json& t) { t["model"]["merges"][0] = "ab"; }, "merge 0 is not a pair"},
      {"a merge to nothing", [](Json& t) { t["model"]["merges"][0] = "b a"; }, "makes no token"},
      {"a merge twice",
       [](Json& t) {
         t["model"]["merges"].push_back({"a", "b"});
       },
       "repeats an earlier one"},
      {"merges that are a number", [](Json& t) { t["model"]["merges"] = 3; }, "model.merges is not a list"},
      {"a split of end of text", [](Json& t) { t["model"]["vocab"][kEndOfText] = 3; }, "but 257 in added_tokens"},
  };
  for (const BadTokenizer& bad : cases) {
    INFO(bad.what);
    Json tokenizer = good_tokenizer();
    bad.damage(tokenizer);
    CHECK_THAT(refusal([&] { parse_tokenizer_json(tokenizer.dump(), "t.json"); }),
               ContainsSubstring("t.json: ") && ContainsSubstring(bad.message));
  }
  CHECK(refusal([&] { parse_tokenizer_json(good_tokenizer().dump(), "t.json"); }) == "accepted");
  const std::string whole = good_tokenizer().dump();
  for (size_t length = 0; length < whole.size(); length += 173)
    CHECK_THAT(refusal([&] { parse_tokenizer_json(whole.substr(0, length), "t.json"); }), ContainsSubstring("t.json: is not JSON"));
  CHECK_THAT(refusal([&] { open_tokenizer("/none/tokenizer.json"); }), ContainsSubstring("No such file"));
}

TEST_CASE("bad shards are refused by name") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const auto open = [&] { return refusal([&] { ShardReader(path).verify(); }); };
  write_shard(path, {.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 4},
              std::vector<int32_t>{1, 2, 256, 7, 8}, std::vector<int64_t>{0, 3});
  CHECK(open() == "accepted");
  const std::string sound = read_text(path);

  write_text(path, "");
  CHECK_THAT(open(), ContainsSubstring("a.h5: is not a Trireme token shard"));
  write_text(path, sound.substr(4096));
  CHECK_THAT(open(), ContainsSubstring("is not a Trireme token shard"));
  write_text(path, "trireme shard 2 " + sound.substr(16));
  CHECK_THAT(open(), ContainsSubstring("another format version"));
  write_text(path, sound.substr(0, 1000));
  CHECK_THAT(open(), ContainsSubstring("is truncated"));
  write_text(path, sound.substr(0, sound.size() - 1));
  CHECK_THAT(open(), ContainsSubstring("is truncated"));

  write_shard(path, {.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 4}, std::vector<int32_t>{1, 2, 3},
              std::vector<int64_t>{0, 2, 2});
  CHECK_THAT(open(), ContainsSubstring("document 2 starts at 2: starts must increase and be below 3"));

  const std::vector<std::array<std::string, 3>> forgeries{
      {"vocab 257", "vocab 200", "a vocabulary of 200 with end_of_document = 256 is impossible"},
      {"vocab 257\nend_of_document 256", "vocab 200\nend_of_document 100", "token 2 is 256, beyond the vocabulary of 200"},
      {"vocab 257", "vocab 70000", "token_bytes = 2 does not fit"},
      {"tokens 5\n", "tokens 5000000\n", "tokens lie outside"},
      {"tokens 5\n", "tokens 9223372036854775807\n", "tokens lie outside"},
      {"tokens 5\n", "tokens 2\n", "document 1 starts at 3"},
      {"documents 2\n", "documents 9000\n", "document starts lie outside"},
      {"tokens_offset ", "tokens_offset 9", "lie outside"},
      {"tokens_offset ", "tokens_offset -", "malformed at tokens_offset"},
      {"starts_offset ", "starts_offset x", "malformed at starts_offset"},
      {"documents 2\n", "documents 99999999999999999999\n", "malformed at documents"},
      {"documents 2\n", "", "malformed at documents"},
      {"rest_digest ", "more 1\nrest_digest ", "malformed at rest_digest"},
      {"tokenizer bytes", "tokenizer other", "its header and its HDF5 structure disagree"},
  };
  for (const auto& [from, to, message] : forgeries) {
    INFO(to);
    write_text(path, sound);
    forge_header(path, from, to);
    CHECK_THAT(open(), ContainsSubstring("a.h5: ") && ContainsSubstring(message));
  }
}

TEST_CASE("bad loss masks and rows are refused by name") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const auto open = [&] { return refusal([&] { ShardReader(path).verify(); }); };
  const std::vector<uint8_t> trained{0, 1, 1, 0};
  write_shard(path, {.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 4},
              std::vector<int32_t>{1, 2, 256, 7}, std::vector<int64_t>{0, 2}, {.trained = trained, .trained_bytes = 1, .row = 2});
  CHECK(open() == "accepted");
  const std::string sound = read_text(path);
  const std::vector<std::array<std::string, 3>> forgeries{
      {"trained_tokens 2\n", "trained_tokens 1\n", "the loss mask has 2 targets, the header says 1"},
      {"trained_tokens 2\n", "trained_tokens 5\n", "trained_tokens = 5 of 4 is impossible"},
      {"loss_mask_offset ", "loss_mask_offset 9", "the loss mask's bits lie outside"},
      {"loss_mask_offset ", "loss_mask_offset -", "malformed at loss_mask_offset"},
      {"trained_bytes 1\n", "", "malformed at trained_bytes"},
      {"row 2\n", "row 0\n", "rows of 0 in 4 tokens with a loss mask are impossible"},
      {"row 2\n", "row 3\n", "rows of 3 in 4 tokens"},
      {"row 2\n", "row 1\n", "the row at token 1 begins within a document"},
      {"row 2\n", "row 2\nrow 2\n", "malformed at its end"},
      {"row 2\n", "row 4\n", "its header and its HDF5 structure disagree"},
      {"row 2\n", "", "its header and its HDF5 structure disagree"},
  };
  for (const auto& [from, to, message] : forgeries) {
    INFO(to);
    write_text(path, sound);
    forge_header(path, from, to);
    CHECK_THAT(open(), ContainsSubstring("a.h5: ") && ContainsSubstring(message));
  }
}

TEST_CASE("shards that do not go together are refused") {
  const Scratch scratch;
  const auto write = [&](const std::string& name, const std::string& tokenizer) {
    write_shard(scratch / name, {.tokenizer = tokenizer, .vocab = 257, .end_of_document = 256, .text_bytes = 4},
                std::vector<int32_t>{1, 2, 256, 7, 8}, std::vector<int64_t>{0, 3});
    return scratch / name;
  };
  const std::string path = write("a.h5", "bytes");
  const Corpus corpus({path}, 2, false);
  corpus.expect_tokenizer(*make_byte_tokenizer());
  CHECK_THAT(refusal([&] { corpus.expect_tokenizer(*make_bpe_tokenizer(parse_tokenizer_json(good_tokenizer().dump(), "t"))); }),
             ContainsSubstring("was made with tokenizer bytes, not with bpe-258-"));
  write("b.h5", "other");
  CHECK_THAT(refusal([&] { Corpus({scratch.path()}, 2, false); }), ContainsSubstring("b.h5: was made with tokenizer other"));
  CHECK_THAT(refusal([&] { Corpus({path}, 100, false); }),
             ContainsSubstring("5 tokens in 1 shards are too few for a sample of 101"));
  CHECK_THAT(refusal([&] { Corpus({}, 100, false); }), ContainsSubstring("no token shards are named"));
  write_text(scratch / "b.h5", "no shard");
  const auto verdicts = verify_shards({path, scratch / "b.h5"});
  REQUIRE(verdicts.size() == 2);
  CHECK(verdicts[0].problem.empty());
  CHECK_THAT(verdicts[1].problem, ContainsSubstring("is not a Trireme token shard"));
}
