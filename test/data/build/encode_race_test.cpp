// Threads that read, encode and write concurrently; also for the thread sanitizer.

#include "base/error.h"
#include "base/json.h"
#include "data/build/build.h"
#include "data/build/tokenizer_train.h"
#include "kernels/device.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/sanitized.h"

using namespace trireme;

namespace {

// Puts the number of threads back.
class Threads {
 public:
  explicit Threads(int count) : before_(threads_here()) { use_threads_here(count); }
  ~Threads() { use_threads_here(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

BuildOptions from(const Scratch& scratch, const std::string& output) {
  return {.inputs = {scratch / "in"},
          .validation_inputs = {},
          .validation_fraction = 0.1,
          .output = scratch / output,
          .tokens_per_shard = kSanitized ? 30'000 : 300'000,
          .keep_every = 0,
          .batch_bytes = kSanitized ? 128 << 10 : kBatchBytes};
}

}  // namespace

TEST_CASE("four threads that read, encode and write make the shards of one") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "in");
  std::string text, lines;
  while (text.size() < (kSanitized ? 900'000 : 9'000'000)) text += "int value_" + std::to_string(text.size() * 7919) + " = 42;\n";
  while (lines.size() < (kSanitized ? 500'000 : 5'000'000))
    lines += Json{{"text", "line " + std::to_string(lines.size())}}.dump() + "\n";
  write_text(scratch / "in/a.txt", text);
  write_text(scratch / "in/b.jsonl", lines + "{\n");
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<BuildSummary> made;
  for (const int count : {1, 4}) {
    const Threads threads(count);
    if (count == 1)
      tokenizer = make_bpe_tokenizer(
          train_tokenizer({.inputs = {scratch / "in"}, .vocab = 300, .text_limit = 100'000}, [](const TokenizerProgress&) {}).bpe);
    made.push_back(build_shards(from(scratch, "by" + std::to_string(count)), *tokenizer, [](const BuildProgress&) {}));
  }
  CHECK(made[0].skipped == 1);
  CHECK(made[1].skipped == 1);
  REQUIRE(made[0].train.shards.size() > 5);
  REQUIRE(made[1].train.shards.size() == made[0].train.shards.size());
  for (size_t i = 0; i < made[0].train.shards.size(); ++i)
    CHECK((read_text(made[0].train.shards[i]) == read_text(made[1].train.shards[i])));
  CHECK((read_text(made[0].validation.shards[0]) == read_text(made[1].validation.shards[0])));
}

TEST_CASE("a failure of one of the threads ends the others, and the first document that cannot be read is reported") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "in");
  const int bad = kSanitized ? 30'000 : 300'000;
  std::string lines;
  for (int i = 0; i < bad / 3 * 4; ++i) lines += i == bad || i == bad / 6 * 7 ? "{}\n" : "{\"text\": \"line\"}\n";
  write_text(scratch / "in/a.jsonl", lines);
  const Threads threads(4);
  BuildOptions options = from(scratch, "out");
  options.documents.skip_bad = false;
  const auto bytes = make_byte_tokenizer();
  for (int i = 0; i < (kSanitized ? 3 : 5); ++i)
    CHECK_THROWS_WITH(build_shards(options, *bytes, [](const BuildProgress&) {}),
                      ContainsSubstring("a.jsonl:" + std::to_string(bad + 1) + ": has no field 'text'"));
}
