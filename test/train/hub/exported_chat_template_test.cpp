// Chat templates of exports: Jinja that writes what ChatTemplate writes (scripts/check_chat_template.py), and which one is chosen.
#include "train/hub/exported_chat_template.h"

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "data/documents/chat_template.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "test/catch.h"
#include "test/train/golden.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

std::unique_ptr<Tokenizer> with_markers(bool special) {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, static_cast<char>(byte));
  bpe.tokens.emplace_back();
  bpe.special = {{256, kEndOfText}};
  bpe.end_of_document = 256;
  for (const char* name : {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>",
                           "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>"}) {
    if (!special) break;
    bpe.special.emplace_back(static_cast<int32_t>(bpe.tokens.size()), name);
    bpe.tokens.emplace_back();
  }
  return make_bpe_tokenizer(std::move(bpe));
}

std::string written(const std::vector<LinePart>& parts) {
  std::string all;
  for (const LinePart& part : parts) all += part.text + (part.ends_turn ? "#END#" : "");
  return all;
}

// The template and the end tokens of an export.
struct ExportedChat {
  std::string jinja;
  Json ends;
  Json ends_of_config{};
  std::string warning{};
};
ExportedChat exported_chat(const Workplace& place, const std::vector<std::string>& words) {
  std::vector<std::string> all{"model", "export", "runs/tiny", "out", "--replace"};
  all.insert(all.end(), words.begin(), words.end());
  const Ended ended = run_trireme(place.scratch.path(), all);
  succeed(ended);
  const Json config = Json::parse(read_text(place.scratch / "out/tokenizer_config.json"));
  const Json ends = Json::parse(read_text(place.scratch / "out/generation_config.json")).at("eos_token_id");
  const Json of_model = Json::parse(read_text(place.scratch / "out/config.json")).at("eos_token_id");
  return {config.value("chat_template", std::string()), ends, of_model, ended.err};
}

// Shards of a conversation in chatml, by tokens.json, whose end token is not that of documents.
void build_talk(const Workplace& place) {
  write_text(place.scratch / "talk.jsonl", R"({"messages": [{"role": "user", "content": "How far is it from here to there?"},)"
                                           R"( {"role": "assistant", "content": "As far as it is from there to here."}]})"
                                           "\n");
  write_text(place.scratch / "words.txt", "how far is it from here to there user assistant\n");
  succeed(run_trireme(place.scratch.path(),
                      {"tokenizer", "train", "words.txt", "--vocab", "270", "--special", "<|im_end|>", "--output", "tokens.json"}));
  succeed(run_trireme(place.scratch.path(), {"data", "build", "talk.jsonl", "--messages-field", "messages", "--chat-template",
                                             "chatml", "--tokenizer", "tokens.json", "--output", "talk"}));
}

void train_on_talk(const Workplace& place, const std::string& tokenizer, const std::string& origin = "") {
  succeed(place.train({"train.steps=1", "train.warmup=0", "train.eval_every=0", "data.train=[talk/train-00000.h5]",
                       "data.validation=", "data.tokenizer=" + tokenizer, "model.vocab=270", "train.init_from=" + origin}));
}

}  // namespace

TEST_CASE("exported Jinja is the one that writes what ChatTemplate writes") {
  std::istringstream lines(read_text(golden_of("chat_templates.jsonl")));
  int64_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json golden = Json::parse(line);
    const std::string name = golden.at("name").get<std::string>();
    const auto tokenizer = with_markers(golden.at("special").get<bool>());
    INFO(line);
    if (golden.contains("jinja")) {
      CHECK(jinja_of(name, *tokenizer) == golden.at("jinja").get<std::string>());
      continue;
    }
    std::vector<ChatMessage> messages;
    for (const Json& message : golden.at("messages"))
      messages.push_back({message.at("role").get<std::string>(), message.at("content").get<std::string>()});
    const std::vector<LinePart> parts = ChatTemplate(name, tokenizer.get()).render(messages, golden.at("answer").get<bool>());
    CHECK(written(parts) == golden.at("text").get<std::string>());
    ++compared;
  }
  CHECK(compared == 70);
}

TEST_CASE("an export has the chat template of its data, or the one that is asked for") {
  const Workplace place;
  build_talk(place);
  train_on_talk(place, "tokens.json");
  const auto tokenizer = open_tokenizer(place.scratch / "tokens.json");
  const Json end = tokenizer->end_of_document(), both = Json::array({end, *tokenizer->special_token("<|im_end|>")});

  const ExportedChat of_data = exported_chat(place, {});
  CHECK(of_data.jinja == jinja_of("chatml", *tokenizer));
  CHECK(of_data.ends == both);
  const ExportedChat alpaca = exported_chat(place, {"--chat-template", "alpaca"});
  CHECK(alpaca.jinja == jinja_of("alpaca", *tokenizer));
  CHECK(alpaca.ends == end);
  write_text(place.scratch / "own.jinja", "{{ messages }}");
  CHECK(exported_chat(place, {"--chat-template", "own.jinja"}).jinja == "{{ messages }}");
  CHECK(exported_chat(place, {"--chat-template", "none"}).jinja.empty());

  write_text(place.scratch / "empty.jinja", "");
  const Ended empty = run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "out2", "--chat-template", "empty.jinja"});
  CHECK(empty.code == 2);
  CHECK(empty.err == "--chat-template empty.jinja: is empty or cannot be read\n");
  const Ended unknown = run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "out2", "--chat-template", "vicuna"});
  CHECK(unknown.code == 2);
  CHECK(unknown.err == "--chat-template vicuna: must be trireme, chatml, llama3 or alpaca, the path of a Jinja file, or none\n");
  const Ended without = run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "out", "--replace", "--tokenizer",
                                                           "none", "--chat-template", "chatml"});
  succeed(without);
  CHECK_THAT(without.err, ContainsSubstring("no tokenizer was written"));
}

TEST_CASE("an export whose training data cannot be read warns that their chat template is not known") {
  const Workplace place;
  build_talk(place);
  train_on_talk(place, "tokens.json");
  CHECK(exported_chat(place, {}).warning.empty());
  std::filesystem::rename(place.scratch / "talk", place.scratch / "elsewhere");
  const ExportedChat gone = exported_chat(place, {});
  CHECK(gone.jinja.empty());
  CHECK_THAT(gone.warning, ContainsSubstring("if the training data are conversations, the export lacks their chat template") &&
                               ContainsSubstring("talk/train-00000.h5") && ContainsSubstring("; name it by --chat-template"));
  for (const char* named : {"none", "chatml"}) CHECK(exported_chat(place, {"--chat-template", named}).warning.empty());
  CHECK_THAT(exported_chat(place, {"--json", "found.json"}).warning, ContainsSubstring("not known"));
  CHECK_THAT(Json::parse(read_text(place.scratch / "found.json")).at("warning").string(), ContainsSubstring("not known"));
}

TEST_CASE("a published model that was fine-tuned with a chat template ends its answers at the template's token, too") {
  const Workplace place;
  build_talk(place);
  train_on_talk(place, "tokens.json");
  const auto tokenizer = open_tokenizer(place.scratch / "tokens.json");
  const Json end = *tokenizer->special_token("<|im_end|>");
  exported_chat(place, {"--chat-template", "none"});
  std::filesystem::rename(place.scratch / "out", place.scratch / "origin");
  std::filesystem::remove_all(place.scratch / "runs");
  train_on_talk(place, "origin/tokenizer.json", "origin");
  const auto set_ends = [&](const std::string& file, const Json& ends) {
    Json json = Json::parse(read_text(place.scratch / ("origin/" + file)));
    json["eos_token_id"] = ends;
    json["top_k"] = 7;
    write_text(place.scratch / ("origin/" + file), json.dump());
  };
  const auto check = [&](const Json& of_model, const Json& generation, const ExportedChat& wanted) {
    set_ends("config.json", of_model);
    set_ends("generation_config.json", generation);
    const ExportedChat found = exported_chat(place, {});
    CHECK(found.ends_of_config == wanted.ends_of_config);
    CHECK(found.ends == wanted.ends);
    CHECK(Json::parse(read_text(place.scratch / "out/generation_config.json")).at("top_k") == 7);
  };
  const auto several = [](std::vector<Json> ids) { return Json(Json::Array(std::move(ids))); };
  check(5, several({5, 6}), {.jinja = "", .ends = several({5, 6, end}), .ends_of_config = several({5, end})});
  check(several({6, end}), end, {.jinja = "", .ends = end, .ends_of_config = several({6, end})});
  check(nullptr, 5, {.jinja = "", .ends = several({5, end}), .ends_of_config = end});
  check(5, nullptr, {.jinja = "", .ends = several({5, end}), .ends_of_config = several({5, end})});
  std::filesystem::remove(place.scratch / "origin/generation_config.json");
  CHECK(exported_chat(place, {}).ends == several({5, end}));
}

}  // namespace trireme
