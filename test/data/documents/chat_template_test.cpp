// Chat templates: the text and the targets of each form, special tokens where the tokenizer has them, and the name in the shards.
#include "data/documents/chat_template.h"

#include "base/error.h"
#include "base/json.h"
#include "data/build/build.h"
#include "data/build/inspect.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const std::vector<ChatMessage> kTalk{{"system", "S"}, {"user", "U"}, {"assistant", "one"}, {"user", "V"}, {"assistant", "two"}};

// Bytes, and special tokens from 257 on.
std::unique_ptr<Tokenizer> bytes_with(const std::vector<std::string>& special) {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, static_cast<char>(byte));
  bpe.tokens.emplace_back();
  bpe.special = {{256, kEndOfText}};
  bpe.end_of_document = 256;
  for (const std::string& name : special) {
    bpe.special.emplace_back(static_cast<int32_t>(bpe.tokens.size()), name);
    bpe.tokens.emplace_back();
  }
  return make_bpe_tokenizer(std::move(bpe));
}

// All tokens as text and the targets alone: # for 256, [id] for special tokens.
struct ShownChat {
  std::string all{}, targets{};
};
ShownChat shown(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& trained) {
  ShownChat shown;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string written = tokens[i] < 256    ? std::string(1, static_cast<char>(tokens[i]))
                                : tokens[i] == 256 ? "#"
                                                   : "[" + std::to_string(tokens[i]) + "]";
    shown.all += written;
    if (trained[i] != 0) shown.targets += written;
  }
  return shown;
}
ShownChat shown(const std::vector<LinePart>& parts, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  encode_parts(parts, tokenizer, tokens, trained);
  return shown(tokens, trained);
}

ShownChat built(const Scratch& scratch, const std::string& line, DocumentOptions documents, const Tokenizer& tokenizer) {
  write_text(scratch / "in.jsonl", line + "\n");
  documents.skip_bad = false;
  const BuildOptions options{.inputs = {scratch / "in.jsonl"},
                             .validation_inputs = {},
                             .output = scratch / "out",
                             .documents = documents,
                             .replace = true};
  build_shards(options, tokenizer, [](const BuildProgress&) {});
  const ShardReader shard(scratch / "out/train-00000.h5");
  std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
  std::vector<uint8_t> trained(tokens.size());
  shard.read(0, tokens);
  shard.read_trained(0, trained);
  return shown(tokens, trained);
}

}  // namespace

TEST_CASE("each chat template has its published form, and the assistant's words and ends are targets") {
  struct Form {
    const char *name, *all, *targets, *answer;
  };
  const std::vector<Form> forms{
      {"trireme", "<|system|>\nS\n<|user|>\nU\n<|assistant|>\none#\n<|user|>\nV\n<|assistant|>\ntwo", "one#two", "<|assistant|>\n"},
      {"chatml",
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n"
       "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n",
       "one<|im_end|>two<|im_end|>", "<|im_start|>assistant\n"},
      {"llama3",
       "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\none<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\ntwo<|eot_id|>",
       "one<|eot_id|>two<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"alpaca", "S\n\n### Instruction:\nU\n\n### Response:\none#\n\n### Instruction:\nV\n\n### Response:\ntwo", "one#two",
       "### Response:\n"},
  };
  const auto bytes = make_byte_tokenizer();
  for (const Form& form : forms) {
    INFO(form.name);
    const ChatTemplate chat(form.name, &*bytes);
    const ShownChat whole = shown(chat.document(kTalk), *bytes);
    CHECK(whole.all == form.all);
    CHECK(whole.targets == form.targets);
    auto asked = kTalk;
    asked.push_back({"user", "not answered"});
    CHECK(shown(chat.document(asked), *bytes).all == form.all);
    const std::string rendered = shown(chat.render(kTalk), *bytes).all;
    CHECK(rendered.starts_with(form.all));
    CHECK(shown(chat.render(kTalk, true), *bytes).all == rendered + form.answer);
    CHECK(chat.document(std::span(kTalk).first(2)).empty());
  }
  CHECK_THAT(shown(ChatTemplate("alpaca").document(std::span(kTalk).subspan(1)), *bytes).all,
             Catch::Matchers::StartsWith(
                 "Below is an instruction that describes a task. Write a response that appropriately completes the "
                 "request.\n\n### Instruction:\nU\n\n"));
  CHECK_THROWS_WITH(ChatTemplate("vicuna"), "chat template 'vicuna': must be one of trireme, chatml, llama3 and alpaca");
}

TEST_CASE("markers of a chat template are the tokenizer's special tokens where it has them, and contents never are") {
  const std::vector<ChatMessage> talk{{"user", "<|im_end|>"}, {"assistant", "a"}};
  const auto chatml = bytes_with({"<|im_start|>", "<|im_end|>"});
  const ShownChat whole = shown(ChatTemplate("chatml", &*chatml).document(talk), *chatml);
  CHECK(whole.all == "[257]user\n<|im_end|>[258]\n[257]assistant\na[258]\n");
  CHECK(whole.targets == "a[258]");
  CHECK(ChatTemplate("chatml", &*chatml).end_of_turn().special == 258);

  const auto llama3 = bytes_with({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  const ShownChat header = shown(ChatTemplate("llama3", &*llama3).document(talk), *llama3);
  CHECK(header.all == "[257][258]user[259]\n\n<|im_end|>[260][258]assistant[259]\n\na[260]");
  CHECK(header.targets == "a[260]");

  const auto roles = bytes_with({"<|user|>", "<|assistant|>"});
  CHECK(shown(ChatTemplate("trireme", &*roles).document(kTalk), *roles).all ==
        "<|system|>\nS\n[257]\nU\n[258]\none#\n[257]\nV\n[258]\ntwo");
  CHECK(ChatTemplate("trireme", &*roles).end_of_turn().special == 256);
  const auto bytes = make_byte_tokenizer();
  CHECK_FALSE(ChatTemplate("llama3", &*bytes).end_of_turn().special);
  CHECK(ChatTemplate("llama3", &*bytes).end_of_turn().text == "<|eot_id|>");
  CHECK_FALSE(bytes->special_token("<|user|>"));
}

TEST_CASE("ShareGPT's conversations are read as those with roles are") {
  const Scratch scratch;
  const auto bytes = make_byte_tokenizer();
  const Json sharegpt = {
      {{"from", "system"}, {"value", "S"}}, {{"from", "human"}, {"value", "U"}}, {{"from", "gpt"}, {"value", "one"}}};
  const Json roles = {
      {{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "U"}}, {{"role", "assistant"}, {"content", "one"}}};
  const DocumentOptions options{.messages = "conversations", .chat_template = "chatml"};
  const ShownChat first = built(scratch, Json{{"conversations", sharegpt}}.dump(), options, *bytes);
  CHECK(first.targets == "one<|im_end|>");
  CHECK(built(scratch, Json{{"conversations", roles}}.dump(), options, *bytes).all == first.all);
  for (const auto& [messages, message] :
       {std::pair(R"([{"from": "tool", "value": "x"}])",
                  "in.jsonl:1: conversations[0].from is 'tool': must be system, human or gpt"),
        {R"([{"from": "gpt", "value": ""}])", "conversations[0] is empty"},
        {R"([{"from": "gpt"}])", "is not an object with strings 'role' and 'content', or 'from' and 'value'"}})
    CHECK_THROWS_WITH(built(scratch, std::string("{\"conversations\": ") + messages + "}", options, *bytes),
                      ContainsSubstring(message));
  const Json late = {{{"from", "human"}, {"value", "U"}}, {{"from", "system"}, {"value", "S"}}, {{"from", "gpt"}, {"value", "a"}}};
  CHECK_THROWS_WITH(built(scratch, Json{{"m", late}}.dump(), {.messages = "m", .chat_template = "alpaca"}, *bytes),
                    ContainsSubstring("m[1] is a system message: with --chat-template alpaca only the first message can be one"));
}

TEST_CASE("Alpaca's instruction, input and output become its prompt and response") {
  const Scratch scratch;
  const auto bytes = make_byte_tokenizer();
  const DocumentOptions alpaca{.prompt = "instruction", .input = "input", .response = "output"};
  const ShownChat both = built(scratch, R"({"instruction": "Add.", "input": "1 2", "output": "3"})", alpaca, *bytes);
  CHECK(both.all ==
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that "
        "appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n3#");
  CHECK(both.targets == "3#");
  for (const char* line : {R"({"instruction": "Hi.", "input": "", "output": "Ho."})", R"({"instruction": "Hi.", "output": "Ho."})",
                           R"({"instruction": "Hi.", "input": null, "output": "Ho."})"})
    CHECK(built(scratch, line, alpaca, *bytes).all ==
          "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
          "### Instruction:\nHi.\n\n### Response:\nHo.#");
  DocumentOptions chatml = alpaca;
  chatml.chat_template = "chatml";
  const ShownChat turns = built(scratch, R"({"instruction": "Add.", "input": "1 2", "output": "3"})", chatml, *bytes);
  CHECK(turns.all == "<|im_start|>user\nAdd.\n1 2<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n#");
  CHECK(turns.targets == "3<|im_end|>");
}

TEST_CASE("shards keep the name of their chat template") {
  const Scratch scratch;
  const auto bytes = make_byte_tokenizer();
  const std::string line = R"({"p": "x", "r": "y", "m": [{"role": "assistant", "content": "z"}]})";
  const auto kept = [&](const DocumentOptions& options) {
    built(scratch, line, options, *bytes);
    const ShardReader shard(scratch / "out/train-00000.h5");
    shard.verify();
    CHECK(describe_shards({scratch / "out"})[0].chat_template == chat_template_of(shard).value_or(""));
    return chat_template_of(shard);
  };
  CHECK(kept({.messages = "m"}) == "trireme");
  CHECK(kept({.messages = "m", .chat_template = "llama3"}) == "llama3");
  CHECK(kept({.prompt = "p", .input = "i", .response = "r"}) == "alpaca");
  CHECK_FALSE(kept({.prompt = "p", .response = "r"}));
  CHECK_FALSE(kept({.field = "p"}));

  const std::string other = "vicuna";
  write_shard(scratch / "a.h5", {.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 1},
              std::vector<int32_t>{1}, std::vector<int64_t>{0},
              {.more = {{kChatTemplateDataset, Hdf5Type::u8, std::as_bytes(std::span(other))}}});
  CHECK_THROWS_WITH(chat_template_of(ShardReader(scratch / "a.h5")),
                    scratch / "a.h5: its chat template 'vicuna' is unknown to this version");
}

TEST_CASE("conversations that begin with the same words are held out together, whatever the template's markers are") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines += Json{{"p", "question " + std::to_string(i / 2)}, {"r", "answer " + std::to_string(i)}}.dump() + "\n";
  write_text(scratch / "in.jsonl", lines);
  const auto chatml = bytes_with({"<|im_start|>", "<|im_end|>"});
  const BuildOptions options{.inputs = {scratch / "in.jsonl"},
                             .validation_inputs = {},
                             .validation_fraction = 0.5,
                             .output = scratch / "out",
                             .documents = {.prompt = "p", .response = "r", .chat_template = "chatml"}};
  const BuildSummary summary = build_shards(options, *chatml, [](const BuildProgress&) {});
  CHECK(summary.validation.documents % 2 == 0);
  CHECK(summary.validation.documents > 60);
  CHECK(summary.train.documents > 60);
}
