// A fraction held out for validation: at least one document of two, and one left for training.
#include "data/build/hold_out.h"

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "data/build/build.h"
#include "data/build/inspect.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

BuildSummary hold_out(const Scratch& scratch, const std::string& input, double fraction, const DocumentOptions& documents = {}) {
  std::filesystem::remove_all(scratch / "out");
  const BuildOptions options{.inputs = {input},
                             .validation_inputs = {},
                             .validation_fraction = fraction,
                             .output = scratch / "out",
                             .documents = documents};
  return build_shards(options, *make_byte_tokenizer(), [](const BuildProgress&) {});
}

std::string refusal_to_hold_out(const Scratch& scratch, const std::string& input, const DocumentOptions& documents = {}) {
  try {
    hold_out(scratch, input, 0.5, documents);
    return "accepted";
  } catch (const DataError& error) {
    CHECK(std::filesystem::is_empty(scratch / "out"));
    return error.what();
  }
}

std::vector<std::string> texts(const std::string& path) {
  std::vector<std::string> all;
  for (const SampleDocument& sample : sample_documents({path}, *make_byte_tokenizer(), 1000, 1000)) all.push_back(sample.text);
  return all;
}

}  // namespace

TEST_CASE("any fraction holds out a document of two or more, and leaves one for training") {
  for (const int documents : {2, 3, 20, 100})
    for (const double fraction : {1e-12, 0.01, 0.5, 0.999999}) {
      INFO(documents << " documents, " << fraction);
      const Scratch scratch;
      std::string lines;
      for (int i = 0; i < documents; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
      write_text(scratch / "in.jsonl", lines);
      const BuildSummary summary = hold_out(scratch, scratch / "in.jsonl", fraction);
      CHECK(summary.validation.documents >= 1);
      CHECK(summary.train.documents >= 1);
      CHECK(summary.train.documents + summary.validation.documents == documents);
      if (fraction == 1e-12) CHECK(summary.validation.documents == 1);
      if (fraction == 0.999999) CHECK(summary.train.documents == 1);
      if (fraction == 1e-12 && documents == 20) {
        auto rest = texts(scratch / "out/train-00000.h5");
        CHECK(std::ranges::is_sorted(rest, {}, [](const std::string& text) { return std::stoi(text.substr(9)); }));
        CHECK(rest.size() == 19);
      }
      for (const auto& entry : std::filesystem::directory_iterator(scratch / "out")) CHECK(entry.path().extension() == ".h5");
    }
}

TEST_CASE("equal documents are held out together, also where there are few") {
  const Scratch scratch;
  write_text(scratch / "in.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  const BuildSummary summary = hold_out(scratch, scratch / "in.jsonl", 1e-12);
  CHECK(summary.validation.documents == 2);
  CHECK(texts(scratch / "out/validation-00000.h5")[0] == texts(scratch / "out/validation-00000.h5")[1]);
}

TEST_CASE("one document, or equal ones alone, cannot be held out, and the message has the remedy") {
  const Scratch scratch;
  write_text(scratch / "one.txt", "one document");
  CHECK(refusal_to_hold_out(scratch, scratch / "one.txt") ==
        scratch / "one.txt" +
            ": is one document, and documents are held out whole: give several files, or JSON lines with a "
            "document each, or name --validation-input FILE");
  write_text(scratch / "same.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\"}\n");
  CHECK(refusal_to_hold_out(scratch, scratch / "same.jsonl") ==
        scratch / "same.jsonl" + ": all 2 documents have the same text, so none can be held out from the others");
}

TEST_CASE("conversations are chosen by what stands in front of the first answer, and by all words if nothing does") {
  const Scratch scratch;
  const auto chosen_by = [&](const DocumentOptions& options, const std::string& line) {
    write_text(scratch / "line.jsonl", line);
    std::vector<Passage> passages = Documents({scratch / "line.jsonl"}, options).next(1);
    REQUIRE(passages.size() == 1);
    return passages[0].text;
  };
  const DocumentOptions talk{.messages = "m"}, pair{.prompt = "p", .response = "r"};
  DocumentOptions form = pair;
  form.chat_template = "chatml";
  CHECK(chosen_by(talk, R"({"m": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})") ==
        "<|user|>\nQ\n<|assistant|>\n");
  CHECK(chosen_by(talk, R"({"m": [{"from": "system", "value": "S"}, {"from": "gpt", "value": "A"}]})") ==
        "<|system|>\nS\n<|assistant|>\n");
  CHECK(chosen_by(pair, R"({"p": "Q", "r": "A"})") == "Q");
  CHECK(chosen_by(form, R"({"p": "Q", "r": "A"})") == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
  CHECK(chosen_by(talk, R"({"m": [{"from": "gpt", "value": "A"}]})") == "<|assistant|>\nA");
  CHECK(chosen_by(talk,
                  R"({"m": [{"from": "gpt", "value": "A"}, {"from": "human", "value": "Q"}, {"from": "gpt", "value": "B"}]})") ==
        "<|assistant|>\nA\n<|user|>\nQ\n<|assistant|>\nB");
  CHECK(chosen_by(pair, R"({"p": "", "r": "A"})") == "A");
  CHECK(chosen_by(form, R"({"p": "", "r": "A"})") == "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
}

TEST_CASE("conversations that begin with an answer do not all fall on one side, and equal ones stay together") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines += R"({"p": "", "r": "answer )" + std::to_string(i / 2) + R"(", "m": [{"from": "gpt", "value": "answer )" +
             std::to_string(i / 2) + "\"}]}\n";
  write_text(scratch / "in.jsonl", lines);
  const DocumentOptions talk{.messages = "m"}, pair{.prompt = "p", .response = "r", .chat_template = "alpaca"};
  for (const DocumentOptions& documents : {talk, pair}) {
    const BuildSummary summary = hold_out(scratch, scratch / "in.jsonl", 0.5, documents);
    CHECK(summary.skipped == 0);
    CHECK(summary.validation.documents % 2 == 0);
    CHECK(summary.validation.documents > 60);
    CHECK(summary.train.documents > 60);
  }
}

TEST_CASE("documents of one prompt cannot be held out from each other, and the message names that and the remedy") {
  const Scratch scratch;
  write_text(scratch / "in.jsonl", "{\"p\": \"Sum it up:\", \"r\": \"a\"}\n{\"p\": \"Sum it up:\", \"r\": \"b\"}\n");
  for (const std::string form : {"", "chatml"})
    CHECK(refusal_to_hold_out(scratch, scratch / "in.jsonl", {.prompt = "p", .response = "r", .chat_template = form}) ==
          scratch / "in.jsonl" +
              ": all 2 documents have the same prompt, and those of one prompt are held out together: put some of them in a file "
              "of their own, and name it by --validation-input FILE");
}

TEST_CASE("of standard input, too, a document is held out, with the shards that its text in a file gives") {
  const Scratch scratch;
  write_text(scratch / "in.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
  hold_out(scratch, scratch / "in.jsonl", 1e-12);
  const auto trained = texts(scratch / "out/train-00000.h5"), held_out = texts(scratch / "out/validation-00000.h5");
  const int keeper = dup(STDIN_FILENO);
  REQUIRE(freopen((scratch / "in.jsonl").c_str(), "r", stdin) != nullptr);
  const BuildSummary summary = hold_out(scratch, "-", 1e-12);
  dup2(keeper, STDIN_FILENO);
  close(keeper);
  CHECK(summary.validation.documents == 1);
  CHECK(texts(scratch / "out/train-00000.h5") == trained);
  CHECK(texts(scratch / "out/validation-00000.h5") == held_out);
}

TEST_CASE("batches of standard input are kept up to a limit, and then none is") {
  ReadBatches read;
  EncodedBatch batch;
  batch.passages.push_back({.text = std::string(static_cast<size_t>(ReadBatches::kMostBytes) / 2, 'x')});
  read.keep(batch);
  read.keep(batch);
  CHECK(read.batches.size() == 2);
  batch.passages[0].text = "x";
  read.keep(batch);
  CHECK(read.batches.empty());
  CHECK_FALSE(read.whole);
  read.keep(batch);
  CHECK(read.batches.empty());
}
