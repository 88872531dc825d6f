// Documents found in files, and reports about invalid ones.
#include "data/documents/documents.h"

#include "base/error.h"
#include "base/json.h"
#include "data/build/build.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const auto kSilently = [](const BuildProgress&) {};

struct Read {
  std::vector<std::string> texts, problems;
};

Read read_documents(const std::string& path, DocumentOptions options = {}) {
  Documents documents({path}, std::move(options));
  Read read;
  for (std::vector<Passage> passages; !(passages = documents.next(1 << 20)).empty();)
    for (const Passage& passage : passages) read.texts.push_back(passage.text);
  read.problems = documents.problems().first;
  return read;
}

}  // namespace

TEST_CASE("lines of JSON are documents by the name of their file, or in a plain .json by its first line") {
  const Scratch scratch;
  const std::string lines = "{\"id\": 1, \"text\": \"one\"}\n{\"text\": \"two\"}\n";
  const std::vector<std::string> both{"one", "two"};
  for (const char* name : {"a.jsonl", "a.ndjson", "a.json"}) {
    write_text(scratch / name, lines);
    CHECK(read_documents(scratch / name).texts == both);
  }
  write_text(scratch / "indented.json", "\n  " + lines);
  CHECK(read_documents(scratch / "indented.json").texts == both);
  for (const std::string other : {"{\n  \"name\": \"a package\"\n}\n", "[1, 2, 3]\n", "{\"body\": \"x\"}\n", "", "\"text\""}) {
    INFO(other);
    write_text(scratch / "other.json", other);
    CHECK(read_documents(scratch / "other.json").texts == (other.empty() ? std::vector<std::string>{} : std::vector{other}));
  }
  CHECK(read_documents(scratch / "other.json", {.field = "body"}).problems.empty());
  write_text(scratch / "broken.json", "{\"text\": \"one\n{\"text\": \"two\"}\n");
  CHECK(read_documents(scratch / "broken.json").texts == std::vector<std::string>{"two"});
  CHECK(read_documents(scratch / "broken.json").problems.size() == 1);
  write_text(scratch / "list.json", "[{\"text\": \"one\"}, {\"text\": \"two\"}]");
  const Read list = read_documents(scratch / "list.json");
  CHECK(list.texts.empty());
  REQUIRE(list.problems.size() == 1);
  CHECK_THAT(list.problems[0], ContainsSubstring("list.json: is one JSON list") && ContainsSubstring("jq"));
  write_text(scratch / "chat.json",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", \"content\": \"hi\"}]}\n");
  CHECK(read_documents(scratch / "chat.json", {.messages = "messages"}).problems.empty());
}

TEST_CASE("a build that ended at a bad document continues if those are now skipped, and not the other way round", "[unsanitized]") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "in");
  std::string lines;
  for (int i = 0; i < 200000; ++i) lines += Json{{"text", "document " + std::to_string(i * 7919)}}.dump() + "\n";
  write_text(scratch / "in/a.jsonl", lines);
  write_text(scratch / "in/b.jsonl", "{\"text\": \"last but one\"}\nno JSON\n" + lines + "{\"text\": \"last\"}\n");
  const auto bytes = make_byte_tokenizer();
  const auto build = [&](const std::string& output, bool skip, const std::function<void()>& resumed) {
    BuildOptions options{.inputs = {scratch / "in"}, .validation_inputs = {}, .output = scratch / output, .keep_every = 0};
    options.documents.skip_bad = skip;
    return build_shards(options, *bytes, kSilently, resumed);
  };
  bool went_on = false;
  const auto resumed = [&] { went_on = true; };
  const BuildSummary whole = build("whole", true, resumed);
  CHECK(whole.skipped == 1);
  CHECK_THROWS_WITH(build("out", false, resumed), ContainsSubstring("b.jsonl:2") && ContainsSubstring("--on-error skip"));
  CHECK_FALSE(went_on);
  CHECK(build("out", true, resumed).skipped == 1);
  CHECK(went_on);
  CHECK(read_text(scratch / "out/train-00000.h5") == read_text(scratch / "whole/train-00000.h5"));

  struct Stop {};
  BuildOptions options{.inputs = {scratch / "in"}, .validation_inputs = {}, .output = scratch / "half", .keep_every = 0};
  const auto behind_the_bad_line = [&](const BuildProgress& progress) {
    if (progress.documents > 200010) throw Stop();
  };
  CHECK_THROWS_AS(build_shards(options, *bytes, behind_the_bad_line), Stop);
  went_on = false;
  CHECK_THROWS_WITH(build("half", false, resumed), ContainsSubstring("b.jsonl:2"));
  CHECK_FALSE(went_on);
}
