// A tokenizer's files: their kinds, and the settings in files beside them.
#include "data/tokenizer/tokenizer_files.h"

#include "base/error.h"
#include "base/json.h"
#include "data/text/text_file.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const std::string kGoldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";

// Members of objects are replaced one by one, all else as a whole.
void replace_in(Json& json, const Json& by) {
  for (const auto& [name, value] : by.members())
    if (value.is_object() && json[name].is_object())
      replace_in(json[name], value);
    else
      json[name] = value;
}

std::string refusal_of(const std::string& path) {
  try {
    open_tokenizer(path);
    return "accepted";
  } catch (const DataError& error) {
    return error.what();
  }
}

// gpt2.json with these special tokens, whose ids follow the others'.
Json with_special(const std::vector<std::string>& special) {
  Json tokenizer = Json::parse(read_text(kGoldens + "gpt2.json"));
  tokenizer["model"]["vocab"].erase(kEndOfText);
  tokenizer["model"]["vocab"]["<unused>"] = 0;
  tokenizer["added_tokens"] = Json::array();
  for (size_t i = 0; i < special.size(); ++i)
    tokenizer["added_tokens"].push_back({{"id", 480 + i}, {"content", special[i]}, {"special", true}});
  return tokenizer;
}

}  // namespace

TEST_CASE("a tokenizer that is called as one of the hub is refused with the command that fetches it") {
  CHECK_THROWS_WITH(open_tokenizer("owner/nobody-1"),
                    "owner/nobody-1: no such file; fetch a published tokenizer with 'hf download owner/nobody-1 tokenizer.json "
                    "--local-dir models/nobody-1' and name its tokenizer.json");
  CHECK_THROWS_WITH(open_tokenizer("nobody.json"), ContainsSubstring("cannot be opened"));
  CHECK_THROWS_WITH(open_tokenizer("./nobody"), ContainsSubstring("cannot be opened"));
}

TEST_CASE("what ends documents has a known name, or is what tokenizer_config.json beside it calls eos_token") {
  const Scratch scratch;
  const std::string path = scratch / "tokenizer.json", config = scratch / "tokenizer_config.json";
  const auto end = [&] { return open_tokenizer(path)->end_of_document(); };
  write_text(config, R"({"eos_token": "<end>"})");  // of turns
  write_text(path, with_special({"<eos>", "</s>", kEndOfText, "<end>"}).dump());
  CHECK(end() == 482);
  write_text(path, with_special({"<eos>", "</s>", "<end>"}).dump());
  CHECK(end() == 481);
  write_text(path, with_special({"<eos>", "<end>"}).dump());
  for (const auto& [said, id] : std::vector<std::pair<Json, int32_t>>{
           {{{"eos_token", "<eos>"}}, 480}, {{{"eos_token", {{"content", "<end>"}, {"lstrip", false}}}}, 481}}) {
    INFO(said);
    write_text(config, said.dump());
    CHECK(end() == id);
  }
  for (const Json& said : {Json::object(), Json{{"eos_token", nullptr}}, Json{{"eos_token", "the"}}}) {
    INFO(said);
    write_text(config, said.dump());
    CHECK_THAT(refusal_of(path), ContainsSubstring("has none of the special tokens"));
  }
  for (const std::string wrong : {R"({"eos_token": 7})", R"({"eos_token": {"text": "</s>"}})", "[]", "{"}) {
    write_text(config, wrong);
    CHECK_THAT(refusal_of(path), ContainsSubstring(config + ": "));
  }
  write_text(path, with_special({"<eos>", "<bos>"}).dump());
  write_text(config, R"({"eos_token": "<fin>"})");
  CHECK_THAT(refusal_of(path), ContainsSubstring(path + ": has none of the special tokens '<|endoftext|>', ") &&
                                   ContainsSubstring("{\"eos_token\": \"...\"} in a tokenizer_config.json beside it") &&
                                   ContainsSubstring("\"<bos>\", \"<eos>\""));
}

TEST_CASE("a .model is SentencePiece's or tiktoken's ranks, by what it holds") {
  const Scratch scratch;
  TextFile packed(kGoldens + "llama2.model.gz");
  std::string pieces(1 << 20, '\0');
  pieces.resize(static_cast<size_t>(packed.read(pieces.data(), std::ssize(pieces))));
  write_text(scratch / "pieces.model", pieces);
  CHECK(open_tokenizer(scratch / "pieces.model")->fingerprint().starts_with("sentencepiece-1000-"));

  write_text(scratch / "ranks.model", read_text(kGoldens + "cl100k.tiktoken"));
  const std::string text = "Where are 12 rowers, and\n\ttheir l\xc3\xa9oars?";
  const auto named = open_tokenizer(scratch / "ranks.model@cl100k"),
             published = open_tokenizer(kGoldens + "cl100k.tiktoken@cl100k");
  CHECK(named->fingerprint() == published->fingerprint());
  CHECK(named->encode(text) == published->encode(text));
  CHECK_THAT(refusal_of(scratch / "ranks.model"), ContainsSubstring("480 ranks are of no published encoding") &&
                                                      ContainsSubstring("ranks.model@cl100k; known are r50k"));

  // As many as Llama 3's: the bytes, then three of them in base64.
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string llama;
  const auto digit = [&](size_t bits) { return digits[bits & 63]; };
  for (size_t i = 0; i < 128000; ++i)
    llama += (i < 256 ? std::string{digit(i >> 2), digit(i << 4), '=', '='}
                      : std::string{'Y', digit(i >> 12), digit(i >> 6), digit(i)}) +
             " " + std::to_string(i) + "\n";
  write_text(scratch / "tokenizer.model", llama);
  const auto tokenizer = open_tokenizer(scratch / "tokenizer.model");
  CHECK(tokenizer->vocab_size() == 128256);
  CHECK(tokenizer->end_of_document() == 128001);
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);

  for (const std::string neither : {"", "two words\n", "{}", "\x7f"}) {
    write_text(scratch / "x.model", neither);
    CHECK_THAT(refusal_of(scratch / "x.model"), ContainsSubstring("is not a SentencePiece model"));
  }
  CHECK_THAT(refusal_of(scratch / "none.model"), ContainsSubstring("none.model: cannot be opened"));
}

TEST_CASE("a tokenizer.json made of a SentencePiece model is refused for that model itself") {
  const Scratch scratch;
  const std::string path = scratch / "tokenizer.json";
  const Json good = with_special({kEndOfText});
  const std::vector<std::pair<std::string, Json>> changes{
      {"model.byte_fallback = true", {{"model", {{"byte_fallback", true}}}}},
      {"model.type = \"Unigram\"", {{"model", {{"type", "Unigram"}}}}},
      {"pre_tokenizer of type \"Metaspace\"", {{"pre_tokenizer", {{"type", "Metaspace"}}}}},
      {"decoder of type \"Metaspace\"", {{"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "Metaspace"}}}}}}}}};
  for (const bool there : {false, true}) {
    if (there) write_text(scratch / "tokenizer.model", "");
    for (const auto& [sign, change] : changes) {
      Json tokenizer = good;
      replace_in(tokenizer, change);
      write_text(path, tokenizer.dump());
      CHECK_THAT(refusal_of(path), ContainsSubstring(path + ": is a SentencePiece model in another form (" + sign + ")") &&
                                       ContainsSubstring(there ? "give " + (scratch / "tokenizer.model") + ", which lies beside it"
                                                               : "none lies beside it"));
    }
  }
  write_text(path, good.dump());
  CHECK(refusal_of(path) == "accepted");
}

TEST_CASE("vocab.json and merges.txt are the tokenizer that their tokenizer.json is") {
  const Scratch scratch;
  const Json whole = Json::parse(read_text(kGoldens + "gpt2.json"));
  const auto expected = open_tokenizer(kGoldens + "gpt2.json");
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : whole["model"]["merges"])
    merges +=
        (merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>()) + "\n";
  for (const std::string prefix : {"", "gpt2-"}) {
    const std::string path = scratch / (prefix + "vocab.json");
    write_text(path, whole["model"]["vocab"].dump());
    CHECK_THAT(refusal_of(path), ContainsSubstring("is a vocabulary alone: its merges must lie beside it, merges.txt"));
    write_text(scratch / (prefix + "merges.txt"), prefix.empty() ? merges : merges.substr(merges.find('\n') + 1));
    const auto pair = open_tokenizer(path);
    CHECK(pair->fingerprint() == expected->fingerprint());
    CHECK(pair->end_of_document() == expected->end_of_document());
    CHECK(pair->vocab_size() == expected->vocab_size());
    for (const auto& entry : Json::parse(read_text(kGoldens + "gpt2_cases.json")))
      CHECK(pair->encode(entry["text"].get<std::string>()) == entry["tokens"].get<std::vector<int32_t>>());
  }
  CHECK_THAT(refusal_of(scratch.path()), ContainsSubstring(": is a directory: name the tokenizer.json"));
}

TEST_CASE("a vocab.json without an end of documents, or whose merges are not its own, is refused") {
  const Scratch scratch;
  const std::string path = scratch / "vocab.json";
  Json vocab = Json::parse(read_text(kGoldens + "gpt2.json"))["model"]["vocab"];
  vocab.erase(kEndOfText);
  vocab["</s>"] = 0;
  vocab["model"] = 480;
  write_text(path, vocab.dump());
  write_text(scratch / "merges.txt", "a s\r\n\r\n");
  CHECK_THAT(refusal_of(path), ContainsSubstring("vocab.json: has no token <|endoftext|>") && ContainsSubstring("\"eos_token\""));
  write_text(scratch / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  CHECK(refusal_of(path) == "accepted");
  CHECK(open_tokenizer(path)->end_of_document() == 0);
  write_text(scratch / "merges.txt", "#version: 0.2\na s\nas zz\n");
  CHECK_THAT(refusal_of(path), ContainsSubstring("vocab.json: merge 1 joins \"as\" and \"zz\""));
  write_text(scratch / "merges.txt", "a s\n\xff \xfe\n");
  CHECK_THAT(refusal_of(path), ContainsSubstring("vocab.json: merge 1 joins"));
  write_text(path, "[1]");
  CHECK_THAT(refusal_of(path), ContainsSubstring("vocab.json: is not a JSON object"));
}

TEST_CASE("ids may have gaps, which nothing is encoded to and which decode to nothing") {
  Json tokenizer = Json::parse(read_text(kGoldens + "gpt2.json"));
  const auto moved = [](int32_t id) { return id < 100 ? id + 3 : id * 2; };
  for (auto& [token, id] : tokenizer["model"]["vocab"].members()) id = moved(id.get<int32_t>());
  tokenizer["added_tokens"][0]["id"] = 1100;
  tokenizer["model"]["vocab"][kEndOfText] = 1100;
  const Bpe bpe = parse_tokenizer_json(tokenizer.dump(), "t.json");
  const auto gaps = make_bpe_tokenizer(bpe);
  CHECK(gaps->vocab_size() == 1101);
  CHECK(gaps->end_of_document() == 1100);
  for (const auto& entry : Json::parse(read_text(kGoldens + "gpt2_cases.json"))) {
    std::vector<int32_t> expected;
    for (const auto& id : entry["tokens"]) expected.push_back(moved(id.get<int32_t>()));
    const auto text = entry["text"].get<std::string>();
    CHECK(gaps->encode(text) == expected);
    CHECK(gaps->decode(expected) == text);
  }
  const auto id = [&](const char* token) { return tokenizer["model"]["vocab"][token].get<int32_t>(); };
  CHECK(gaps->decode(std::vector<int32_t>{0, id("A"), 201, 1099, id("B")}) == "AB");
  CHECK_THROWS_AS(gaps->decode(std::vector<int32_t>{1101}), DataError);
  const Json written = Json::parse(tokenizer_json(bpe));
  CHECK(written["model"]["vocab"].size() == tokenizer["model"]["vocab"].size());
  CHECK(make_bpe_tokenizer(parse_tokenizer_json(written.dump(), "t.json"))->fingerprint() == gaps->fingerprint());
}
