// trireme chat: a model that was trained on conversations answers as they do, in every form; turns that exceed the context are
// forgotten; Ctrl-C ends an answer, and then the chat.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/eval/conversation.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Conversations of one to three turns: a colour, and its French name.
void write_colours(const std::string& path) {
  const char* const colours[][2] = {{"red", "rouge"}, {"blue", "bleu"}, {"green", "vert"}, {"black", "noir"}};
  std::string lines;
  for (size_t i = 0, draw = 7; i < 1500; ++i) {
    Json messages;
    for (size_t turn = 0; turn <= i % 3; ++turn) {
      draw = draw * 1103515245 + 12345;
      const auto& [english, french] = colours[draw >> 16 & 3];
      messages.push_back(Json{{"role", "user"}, {"content", english}});
      messages.push_back(Json{{"role", "assistant"}, {"content", french}});
    }
    lines += Json{{"messages", messages}}.dump() + "\n";
  }
  write_text(path, lines);
}

// A place with a model for each form: runs/FORM, of 150 steps.
struct ChatPlace {
  Scratch scratch;

  ChatPlace() { write_colours(scratch / "chats.jsonl"); }

  void train(const std::string& form, const std::string& tokenizer, const std::string& vocab) const {
    succeed(run_trireme(scratch.path(), {"data", "build", "chats.jsonl", "--messages-field", "messages", "--chat-template", form,
                                         "--output", "data-" + form, "--tokenizer", tokenizer}));
    write_text(scratch / (form + ".yaml"),
               "kernels: {dtype: f32, threads: 1}\n"
               "model: {family: llama, layers: 2, width: 64, heads: 4, context: 128, vocab: " +
                   vocab +
                   "}\n"
                   "data: {train: [data-" +
                   form + "/train-00000.h5], tokenizer: " + tokenizer +
                   "}\n"
                   "train: {name: " +
                   form + ", steps: 150, batch: 8, microbatch: 8, lr: 0.005, warmup: 20, eval_every: 0}\n");
    succeed(run_trireme(scratch.path(), {"train", form + ".yaml"}));
  }

  Ended chat(const std::string& messages, const std::string& arguments) const {
    const std::string command = "printf '" + messages + "' | " TRIREME_BUILD "/trireme chat " + arguments;
    return Process(scratch.path(), {"-c", command}, 1, "/bin/sh").wait();
  }
};

std::string wait_for_text(const std::string& path, const std::string& wanted) {
  std::string text;
  for (int i = 0; i < 600; ++i, std::this_thread::sleep_for(50ms)) {
    text = fs::exists(path) ? read_text(path) : "";
    if (text.find(wanted) != std::string::npos) return text;
  }
  return text;
}

}  // namespace

TEST_CASE("a chat answers in the form of the run's data, and forgets the oldest turns") {
  const ChatPlace place;
  place.train("trireme", "bytes", "257");
  const Ended ended = place.chat("red\\nblue\\n\\ngreen\\nblack\\nred\\nbl\\\\\\nue", "trireme --temperature 0");
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.starts_with("rouge\nbleu\nvert\nnoir\nrouge\n"));
  CHECK(std::ranges::count(ended.out, '\n') == 6);  // the last message has two lines, and one answer
  const std::string head = "runs/trireme/checkpoints/step-00000150, chat template trireme, context of 128 tokens\n";
  CHECK(ended.err.starts_with(head + "context full: 1 turn forgotten, the oldest first\n"));

  const Ended long_message = place.chat("red\\n" + std::string(90, 'x') + "\\nblue", "trireme --temperature 0");
  CHECK(long_message.out == "rouge\nbleu\n");
  CHECK(long_message.err == head + "this message does not fit: 96 of the context's 128 tokens are for messages; shorten it\n");
  const Ended cut = place.chat("red", "trireme --temperature 0 --tokens 3");
  CHECK(cut.out == "rou\n");
  CHECK(cut.err == head + "answer ended after --tokens 3\n");
  CHECK(place.chat("red\\nred", "trireme --temperature 0 --system 'Say it in French.'").out.starts_with("rouge\n"));
}

TEST_CASE("a chat writes markers as the tokenizer's special tokens, or as text") {
  const ChatPlace place;
  place.train("chatml", "bytes", "257");
  const Ended as_text = place.chat("red\\nblue", "chatml --temperature 0");
  CHECK(as_text.out == "rouge\nbleu\n");
  write_text(place.scratch / "words.txt", "red rouge blue bleu green vert black noir user assistant system\n");
  succeed(run_trireme(place.scratch.path(),
                      {"tokenizer", "train", "words.txt", "--vocab", "280", "--special", "<|eot_id|>", "--special",
                       "<|start_header_id|>", "--special", "<|end_header_id|>", "--output", "tokens.json"}));
  place.train("llama3", "tokens.json", "280");
  const Ended as_tokens = place.chat("red\\nblue\\ngreen\\nblack", "llama3 --temperature 0");
  CHECK(as_tokens.out == "rouge\nbleu\nvert\nnoir\n");
}

TEST_CASE("a model without a chat template is refused, and an exported one is recognised") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1"}));
  const auto chat = [&](const std::string& model) { return run_trireme(place.scratch.path(), {"chat", model}); };
  const Ended refused = chat("tiny");
  CHECK(refused.code == 2);
  CHECK(refused.err ==
        "runs/tiny/checkpoints/step-00000002: has no chat template that is known here: neither its data nor its directory names "
        "one; choose it by --chat-template trireme, chatml, llama3 or alpaca, or use `trireme sample`\n");
  succeed(run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "published"}));
  succeed(run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "talks", "--chat-template", "trireme"}));
  CHECK(chat("talks").err == "talks, chat template trireme, context of 64 tokens\n");
  const auto form_of = [&](const std::string& jinja) {
    write_text(place.scratch / "published/chat_template.jinja", jinja);
    return chat("published").err;
  };
  CHECK(form_of("{% for m in messages %}<|im_start|>{{ m.role }}") == "published, chat template chatml, context of 64 tokens\n");
  CHECK(form_of("<|start_header_id|>").starts_with("published, chat template llama3"));
  CHECK(form_of("### Instruction:").starts_with("published, chat template alpaca"));
  CHECK_THAT(form_of("<|user|> <|assistant|>"), ContainsSubstring("no chat template that is known here"));
  CHECK_THAT(form_of("[INST]"), ContainsSubstring("no chat template that is known here"));
}

TEST_CASE("a chat names why the template of the run's data is not known, and takes that of the model it began with") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1"}));
  succeed(run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "talks", "--chat-template", "trireme"}));
  succeed(place.train({"train.steps=2", "train.warmup=1", "train.name=tuned", "train.init_from=talks"}));
  const auto chat = [&](const std::string& model) { return run_trireme(place.scratch.path(), {"chat", model}); };
  const std::string head = "runs/tuned/checkpoints/step-00000002, chat template trireme, context of 64 tokens\n";
  CHECK(chat("tuned").err == head);
  fs::rename(place.scratch / "shards", place.scratch / "elsewhere");
  const std::string unknown = "the chat template of the training data is not known: ";
  const auto names_shard = ContainsSubstring("shards/train-00000.h5: no such file or directory");
  const std::string warned = chat("tuned").err;
  CHECK(warned.starts_with(unknown));
  CHECK_THAT(warned, names_shard && ContainsSubstring("; --chat-template names another\n" + head));
  const Ended refused = chat("tiny");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, names_shard && ContainsSubstring("nor its directory names one (" + unknown) &&
                              ContainsSubstring("); choose it by --chat-template trireme"));
}

TEST_CASE("Ctrl-C ends an answer, and then the chat") {
  const Workplace place;
  succeed(place.train({}));
  const std::string in = place.scratch / "in", out = place.scratch / "out", err = place.scratch / "err";
  REQUIRE(std::system(("mkfifo " + in).c_str()) == 0);
  Process process(place.scratch.path(),
                  {"-c", "exec " TRIREME_BUILD "/trireme chat tiny --chat-template trireme --temperature 0 --tokens 1000000 --set "
                         "model.context=1000000 < in > out 2> err"},
                  1, "/bin/sh");
  std::ofstream typed(in);
  typed << "a\n" << std::flush;
  for (int i = 0; i < 600 && (!fs::exists(out) || fs::file_size(out) < 100); ++i) std::this_thread::sleep_for(50ms);
  process.signal(SIGINT);
  CHECK_THAT(wait_for_text(err, "Ctrl-C"), Catch::Matchers::EndsWith("answer ended by Ctrl-C\n"));
  CHECK(process.running());
  std::this_thread::sleep_for(200ms);  // it waits for a line
  process.signal(SIGINT);
  CHECK(process.wait().code == 0);
}

TEST_CASE("an answer's text ends before the text that ends it, however its tokens lie") {
  const auto bytes = make_byte_tokenizer();
  const auto answer = [&](const std::string& text, const std::string& end) {
    AnswerText words(*bytes, {256}, end);
    std::string whole;
    bool ended = false;
    for (const int32_t token : bytes->encode(text)) {
      if (ended = !words.take(token); ended) break;
      const std::string fresh = words.fresh();
      CHECK(fresh.find('#') == std::string::npos);
      whole += fresh;
    }
    return whole + words.fresh(true) + (ended ? "|" : "");
  };
  CHECK(answer("one<|end|>two", "<|end|>") == "one|");
  CHECK(answer("one<|en<|end|>two", "<|end|>") == "one<|en|");
  CHECK(answer("one<|en", "<|end|>") == "one<|en");
  CHECK(answer("one<|end|>", "") == "one<|end|>");
  CHECK(answer("<|end|>", "<|end|>") == "|");
  AnswerText ended(*bytes, {256}, "");
  CHECK(ended.take('x'));
  CHECK(!ended.take(256));
}

TEST_CASE("a conversation's tokens are those that training on it would read") {
  const auto bytes = make_byte_tokenizer();
  const ChatTemplate form("trireme", bytes.get());
  Conversation talk(form, *bytes, {256}, "Be brief.");
  CHECK(talk.ask("Hi", 1000) == 0);
  CHECK(bytes->decode(std::span(talk.tokens()).subspan(1)) == "<|system|>\nBe brief.\n<|user|>\nHi\n<|assistant|>\n");
  CHECK(talk.tokens().front() == 256);
  talk.answer("Hello");
  CHECK(talk.ask("And?", 1000) == 0);
  std::vector<int32_t> document{256};
  std::vector<uint8_t> trained;
  const std::vector<ChatMessage> messages{
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello"}, {"user", "And?"}, {"assistant", "So."}};
  encode_parts(form.document(messages), *bytes, document, trained);
  REQUIRE(document.size() > talk.tokens().size());
  document.resize(document.size() - 3);
  CHECK(document == talk.tokens());
  talk.answer("So.");
  CHECK(talk.ask("Last", 90) == 1);  // the system's message stays
  CHECK(bytes->decode(std::span(talk.tokens()).subspan(1)).starts_with("<|system|>\nBe brief.\n<|user|>\nAnd?\n"));
  CHECK(!talk.ask(std::string(100, 'x'), 90));
  CHECK(talk.ask("Ok", 1000) == 0);
}

}  // namespace trireme
