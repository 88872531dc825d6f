// Text as samples: the same rows as from a shard of the same documents, after one more
// end_of_document.
#include "data/loader/text_stream.h"

#include <array>

#include "base/error.h"
#include "data/build/build.h"
#include "data/loader/corpus.h"
#include "test/catch.h"
#include "test/data/scratch.h"

namespace trireme {
namespace {

struct Rows {
  std::vector<int32_t> tokens, targets, positions, starts;
  explicit Rows(size_t count) : tokens(count), targets(count), positions(count), starts(count) {}
  SampleRow row() { return {tokens.data(), targets.data(), positions.data(), starts.data()}; }
};

// Each target with the token in front of it and the first token that it may see, in the order of the stream.
template <class Samples>
std::vector<std::array<int32_t, 3>> predictions(const Samples& samples, int64_t context) {
  std::vector<std::array<int32_t, 3>> found;
  for (int64_t i = 0; i < samples.samples(); ++i) {
    Rows rows(static_cast<size_t>(context));
    samples.read(i, true, true, rows.row());
    for (size_t t = 0; t < rows.targets.size(); ++t)
      if (rows.targets[t] >= 0)
        found.push_back({rows.tokens[t], rows.targets[t], rows.tokens[static_cast<size_t>(rows.starts[t])]});
  }
  return found;
}

}  // namespace

TEST_CASE("text gives the predictions of a shard of the same documents, and that of its first token") {
  const Scratch scratch;
  write_text(scratch / "texts.jsonl", R"({"text": "first one"})"
                                      "\n"
                                      R"({"text": "2nd"})"
                                      "\n"
                                      R"({"text": "the third of them"})"
                                      "\n");
  const auto tokenizer = make_byte_tokenizer();
  build_shards({.inputs = {scratch / "texts.jsonl"}, .validation_inputs = {}, .output = scratch / "shards"}, *tokenizer,
               [](const BuildProgress&) {});
  for (const auto& [context, overlap] : {std::pair(40, 0), {8, 0}, {8, 4}, {5, 4}}) {
    CAPTURE(context, overlap);
    const TextStream stream({scratch / "texts.jsonl"}, "text", *tokenizer, context, overlap);
    const Corpus corpus({scratch / "shards"}, context, true, overlap);
    CHECK(stream.tokens() == corpus.tokens());
    CHECK(stream.text_bytes() == corpus.text_bytes());
    auto of_text = predictions(stream, context);
    CHECK(std::ssize(of_text) == stream.tokens());
    CHECK(of_text.front() == std::array<int32_t, 3>{tokenizer->end_of_document(), 'f', tokenizer->end_of_document()});
    of_text.erase(of_text.begin());
    const auto of_shard = predictions(corpus, context);
    REQUIRE(of_text.size() == of_shard.size());
    for (size_t i = 0; i < of_text.size(); ++i)
      CHECK(std::pair(of_text[i][0], of_text[i][1]) == std::pair(of_shard[i][0], of_shard[i][1]));
    if (context == 40) CHECK(of_text == of_shard);  // in one row both see as far
  }
}

TEST_CASE("text that is none is refused") {
  const Scratch scratch;
  const auto tokenizer = make_byte_tokenizer();
  write_text(scratch / "empty.txt", "");
  write_text(scratch / "other.jsonl", "{\"words\": \"a\"}\n");
  CHECK_THROWS_AS(TextStream({scratch / "empty.txt"}, "text", *tokenizer, 8, 0), DataError);
  CHECK_THROWS_AS(TextStream({scratch / "other.jsonl"}, "text", *tokenizer, 8, 0), DataError);
  CHECK(TextStream({scratch / "other.jsonl"}, "words", *tokenizer, 8, 0).tokens() == 2);
}

}  // namespace trireme
