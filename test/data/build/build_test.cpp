#include "data/build/build.h"

#include <omp.h>

#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "data/build/inspect.h"
#include "data/build/split_writer.h"
#include "data/build/tokenizer_train.h"
#include "data/documents/list_files.h"
#include "data/loader/corpus.h"
#include "data/text/text_file.h"
#include "test/catch.h"
#include "test/data/packed.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const auto kSilent = [](const BuildProgress&) {};

std::vector<int32_t> tokens_of(const std::vector<std::string>& shards) {
  std::vector<int32_t> all;
  for (const std::string& path : shards) {
    const ShardReader shard(path);
    std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
    shard.read(0, tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return all;
}

std::string line_of(const std::string& text) { return Json{{"text", text}}.dump() + "\n"; }

}  // namespace

TEST_CASE("documents become a stream of tokens, each followed by an end") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "in/deep/.hidden");
  write_text(scratch / "in/a.txt", "one");
  write_text(scratch / "in/deep/b", "two\n");
  write_text(scratch / "in/deep/.hidden/c", "not read");
  write_text(scratch / "in/empty.txt", "");
  write_text(scratch / "z.jsonl", line_of("thr\xc3\xa9"
                                          "e") +
                                      "\n" + line_of("") + "  {\"text\": \"f\\u00f6ur\"}");
  const auto bytes = make_byte_tokenizer();
  const auto summary = build_shards(
      {.inputs = {scratch / "in", scratch / "*.jsonl"}, .validation_inputs = {}, .output = scratch / "out"}, *bytes, kSilent);
  CHECK(summary.train.documents == 4);
  CHECK(summary.skipped == 0);
  CHECK(summary.train.shards == std::vector<std::string>{scratch / "out/train-00000.h5"});
  const auto tokens = tokens_of(summary.train.shards);
  CHECK(bytes->decode(tokens) ==
        "onetwo\nthr\xc3\xa9"
        "ef\xc3\xb6ur");
  CHECK(summary.train.text_bytes == 3 + 4 + 6 + 5);
  CHECK(summary.train.tokens == 18 + 4);
  CHECK(tokens[3] == 256);
  CHECK(tokens.back() == 256);
  const ShardReader shard(summary.train.shards[0]);
  CHECK(shard.document_starts() == std::vector<int64_t>{0, 4, 9, 16});
  const auto infos = describe_shards({scratch / "out"});
  REQUIRE(infos.size() == 1);
  CHECK(infos[0].tokens == 22);
  CHECK(infos[0].facts.text_bytes == 18);
  CHECK(verify_shards({scratch / "out"})[0].problem.empty());
}

TEST_CASE("packed files give the tokens of what is packed in them, also of several streams one after the other") {
  const Scratch scratch;
  std::string lines, more;
  for (int i = 0; i < 40000; ++i) lines += line_of("line " + std::to_string(i) + " of some text that packs well");
  for (int i = 0; i < 1000; ++i) more += line_of("another " + std::to_string(i));
  const std::string text = lines.substr(0, 3 << 20);  // three chunks to the byte
  for (const std::string packing : {"", ".gz", ".zst", ".xz", ".bz2"}) {
    const auto pack = [&](const std::string& what) { return packed_as(packing, what); };
    std::filesystem::create_directories(scratch / ("in" + packing));
    write_text(scratch / ("in" + packing + "/a.jsonl" + packing), pack(lines) + pack(more));
    write_text(scratch / ("in" + packing + "/b.txt" + packing), pack(text));
    write_text(scratch / ("in" + packing + "/c.txt" + packing), pack(text.substr(0, 1 << 20)));
    write_text(scratch / ("in" + packing + "/d.txt" + packing), pack(""));
    write_text(scratch / ("in" + packing + "/e.txt" + packing), pack("end") + std::string(packing == ".gz" ? 512 : 0, '\0'));
  }
  const auto bytes = make_byte_tokenizer();
  std::vector<int32_t> plain;
  for (const std::string packing : {"", ".gz", ".zst", ".xz", ".bz2"}) {
    INFO("packing '" << packing << "'");
    BuildProgress last{};
    const auto summary =
        build_shards({.inputs = {scratch / ("in" + packing)}, .validation_inputs = {}, .output = scratch / ("out" + packing)},
                     *bytes, [&](const BuildProgress& progress) {
                       CHECK(progress.bytes_read >= last.bytes_read);
                       last = progress;
                     });
    CHECK(summary.train.documents == 41003);
    CHECK(last.bytes_read == last.bytes_total);
    const auto tokens = tokens_of(summary.train.shards);
    if (packing.empty()) plain = tokens;
    CHECK(tokens == plain);
  }
}

TEST_CASE("zstd files with the windows of --long=28 and more are unpacked") {
  const Scratch scratch;
  const std::string words = "text in a large window";
  for (const int window_log : {27, 28, 29}) {  // a frame without its content's size, and in it one raw block, the last
    INFO("window of 2^" << window_log << " bytes");
    const std::string frame = std::string("\x28\xb5\x2f\xfd\0", 5) + static_cast<char>((window_log - 10) << 3) +
                              static_cast<char>(words.size() << 3 | 1) + std::string(2, '\0') + words;
    write_text(scratch / "a.txt.zst", frame);
    TextFile file(scratch / "a.txt.zst");
    std::string read(100, '\0');
    read.resize(static_cast<size_t>(file.read(read.data(), 100)));
    CHECK(read == words);
  }
}

TEST_CASE("packed files that are damaged or cut off are reported and skipped, or end the build") {
  const Scratch scratch;
  std::string lines;
  for (uint64_t i = 0; i < 30000; ++i) lines += line_of("line " + std::to_string(i * 2654435761u));
  const auto bytes = make_byte_tokenizer();
  for (const std::string packing : {".gz", ".zst", ".xz", ".bz2"}) {
    const std::string packed = packed_as(packing, lines);
    std::string damaged = packed;
    damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
    for (const auto& [what, content, message] :
         {std::tuple("cut", packed.substr(0, packed.size() / 2), "is cut off"),
          std::tuple("damaged", damaged, "cannot be unpacked"), std::tuple("plain", lines, "cannot be unpacked")}) {
      INFO(what << packing);
      const std::string in = scratch / (what + packing);
      std::filesystem::create_directories(in);
      write_text(in + "/a.jsonl" + packing, content);
      write_text(in + "/b.txt", "good");
      const BuildOptions skipping{.inputs = {in}, .validation_inputs = {}, .output = in + "-skipping"};
      const auto summary = build_shards(skipping, *bytes, kSilent);
      REQUIRE(summary.skipped >= 1);
      CHECK_THAT(summary.problems.back(), ContainsSubstring("a.jsonl" + packing));
      const std::string text = bytes->decode(tokens_of(summary.train.shards));
      CHECK(text.ends_with("good"));
      if (what != std::string("plain")) CHECK(text.starts_with("line 0line 2654435761"));
      BuildOptions stopping{.inputs = {in}, .validation_inputs = {}, .output = in + "-stopping"};
      stopping.documents.skip_bad = false;
      CHECK_THROWS_WITH(build_shards(stopping, *bytes, kSilent), ContainsSubstring("a.jsonl" + packing));
      if (what != std::string("damaged")) CHECK_THAT(summary.problems.back(), ContainsSubstring(message));
    }
  }
}

TEST_CASE("shards are cut at their size and the pieces make the whole") {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i) + "\n";
  write_text(scratch / "a.txt", text);
  write_text(scratch / "b.txt", "tail");
  const auto bytes = make_byte_tokenizer();
  BuildOptions options{.inputs = {scratch / "a.txt", scratch / "b.txt"}, .validation_inputs = {}, .output = scratch / "out"};
  options.tokens_per_shard = 1000;
  const auto summary = build_shards(options, *bytes, kSilent);
  REQUIRE(summary.train.shards.size() == (text.size() + 6 + 999) / 1000);
  CHECK(bytes->decode(tokens_of(summary.train.shards)) == text + "tail");
  int64_t text_bytes = 0;
  for (const auto& info : describe_shards({scratch / "out"})) {
    CHECK(info.tokens <= 1000);
    text_bytes += info.facts.text_bytes;
  }
  CHECK(text_bytes == static_cast<int64_t>(text.size()) + 4);
  CHECK(Corpus({scratch / "out"}, 10, false).text_bytes() == text_bytes);
}

TEST_CASE("a writer of many shards keeps the threads of few, which wait for the disk", "[unsanitized]") {
  const Scratch scratch;
  const auto bytes = make_byte_tokenizer();
  SplitSummary summary;
  SplitWriter writer({.directory = scratch.path(), .split = "train", .tokens_per_shard = 2}, *bytes, summary);
  const auto write_shards = [&](int count) {
    const std::vector<int32_t> tokens{1, 2};
    for (int i = 0; i < count; ++i) writer.push(tokens);
    return count_of(read_text("/proc/self/maps"), "\n");  // each thread that nobody has waited for has a stack and its guard
  };
  writer.begin_document({.file = "a"});
  const size_t few = write_shards(20), many = write_shards(100);
  CHECK(many < few + 100);
  writer.finish();
  CHECK(summary.shards.size() == 120);
}

TEST_CASE("the shards do not depend on the number of threads, nor documents on how they are cut") {
  const Scratch scratch;
  std::string lines, large;
  for (int i = 0; i < 500; ++i) lines += line_of("document " + std::to_string(i * 7919) + " of some\n\nwords");
  while (large.size() < 4800000) large += "int value_" + std::to_string(large.size()) + " = 42;\n\n  \tand more\n";
  write_text(scratch / "a.jsonl", lines);
  write_text(scratch / "large.txt", large);
  const auto tokenizer = make_bpe_tokenizer(
      train_tokenizer({.inputs = {scratch / "a.jsonl", scratch / "large.txt"}, .vocab = 400}, [](const TokenizerProgress&) {}).bpe);
  std::vector<std::string> files;
  for (const int threads : {1, 2, 8}) {
    omp_set_num_threads(threads);
    BuildOptions options{
        .inputs = {scratch / "a.jsonl", scratch / "large.txt"}, .validation_inputs = {}, .output = scratch / "out"};
    options.replace = true;
    const auto summary = build_shards(options, *tokenizer, kSilent);
    CHECK(summary.train.documents == 501);
    files.push_back(read_text(summary.train.shards[0]));
    auto expected = tokenizer->encode(large);
    expected.push_back(tokenizer->end_of_document());
    const auto tokens = tokens_of(summary.train.shards);
    CHECK(std::equal(expected.rbegin(), expected.rend(), tokens.rbegin()));
  }
  CHECK(files[0] == files[1]);
  CHECK(files[0] == files[2]);
  omp_set_num_threads(2);
}

TEST_CASE("a fraction of the documents is held out, equal ones together") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += line_of("text " + std::to_string(i % 500));
  write_text(scratch / "a.jsonl", lines);
  const auto bytes = make_byte_tokenizer();
  const auto summary = build_shards(
      {.inputs = {scratch / "a.jsonl"}, .validation_inputs = {}, .validation_fraction = 0.1, .output = scratch / "out"}, *bytes,
      kSilent);
  CHECK(summary.train.documents + summary.validation.documents == 1000);
  CHECK(summary.validation.documents > 60);
  CHECK(summary.validation.documents < 140);
  CHECK(summary.validation.documents % 2 == 0);
  CHECK_THROWS_WITH(Corpus({scratch / "out"}, 4, false), ContainsSubstring("holds train and validation shards"));
  CHECK(Corpus({scratch / "out/train-*.h5"}, 4, false).tokens() == summary.train.tokens);
}

TEST_CASE("named validation files are held out even where the inputs name them too") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "in");
  write_text(scratch / "in/a.txt", "train");
  write_text(scratch / "in/b.txt", "held");
  const auto bytes = make_byte_tokenizer();
  const auto summary = build_shards(
      {.inputs = {scratch / "in"}, .validation_inputs = {scratch / "in/b.txt"}, .output = scratch / "out"}, *bytes, kSilent);
  CHECK(bytes->decode(tokens_of(summary.train.shards)) == "train");
  CHECK(bytes->decode(tokens_of(summary.validation.shards)) == "held");
}

TEST_CASE("earlier shards are only replaced when asked to") {
  const Scratch scratch;
  write_text(scratch / "a.txt", "some text of more than ten tokens");
  const auto bytes = make_byte_tokenizer();
  BuildOptions options{.inputs = {scratch / "a.txt"}, .validation_inputs = {}, .output = scratch / "out"};
  options.tokens_per_shard = 10;
  CHECK(build_shards(options, *bytes, kSilent).train.shards.size() == 4);
  write_text(scratch / "out/train-00009.h5.tmp", "left by a killed build");
  CHECK_THROWS_WITH(build_shards(options, *bytes, kSilent), ContainsSubstring("holds shards already"));
  options.tokens_per_shard = 100;
  options.replace = true;
  CHECK(build_shards(options, *bytes, kSilent).train.shards.size() == 1);
  CHECK(list_files({scratch / "out"}).size() == 1);
}

TEST_CASE("progress grows to the end") {
  const Scratch scratch;
  write_text(scratch / "a.txt", std::string(100000, 'a'));
  const auto bytes = make_byte_tokenizer();
  BuildProgress last{};
  build_shards({.inputs = {scratch / "a.txt"}, .validation_inputs = {}, .output = scratch / "out"}, *bytes,
               [&](const BuildProgress& now) { last = now; });
  CHECK(last.bytes_read == 100000);
  CHECK(last.bytes_total == 100000);
  CHECK(last.documents == 1);
  CHECK(last.tokens == 100001);
}
