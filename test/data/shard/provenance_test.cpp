// Sources of the documents in shards: the text found there is the document's.
#include "data/shard/provenance.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "data/build/build.h"
#include "data/build/import.h"
#include "data/text/text_file.h"
#include "test/catch.h"
#include "test/data/damage.h"
#include "test/data/h5dump.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const auto kQuiet = [](const BuildProgress&) {};

void write_packed(const std::string& path, const std::string& text) {
  const gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  gzclose(file);
}

std::string unpacked(const std::string& path) {
  TextFile file(path);
  std::string text(8 << 20, '\0');
  text.resize(static_cast<size_t>(file.read(text.data(), std::ssize(text))));
  return text;
}

// Text at a source in a file: all of it, or the text of the JSON line.
std::string text_at(const DocumentSource& source, const std::string& all) {
  if (source.line == DocumentSource::kWholeFile) return all;
  const auto begin = static_cast<size_t>(source.offset);
  CHECK(std::count(all.begin(), all.begin() + source.offset, '\n') == source.line - 1);
  return Json::parse(all.substr(begin, all.find('\n', begin) - begin)).at("text");
}

std::string lines_of(int64_t documents, uint64_t key) {
  std::string lines;
  for (int64_t i = 0; i < documents; ++i) {
    const auto number = static_cast<uint64_t>(i);
    if (philox64(key, number) % 5 == 0) lines += "  \n";  // a line without a document
    const std::string text = std::string(philox64(key + 1, number) % 300, 'a') + " \xc3\xa9\n" + std::to_string(i);
    lines += Json{{"other", i}, {"text", text}}.dump() + "\n";
  }
  return lines;
}

// Text by source, put together from all shards: a document may lie in several.
std::map<std::tuple<std::string, int64_t, int64_t>, std::string> texts_of(const std::vector<std::string>& shards) {
  const auto bytes = make_byte_tokenizer();
  std::map<std::tuple<std::string, int64_t, int64_t>, std::string> texts;
  for (const std::string& path : shards) {
    const ShardReader shard(path);
    shard.verify();
    const Provenance provenance = Provenance::read(shard).value();
    const auto starts = shard.document_starts();
    const auto count = static_cast<int64_t>(starts.size());
    for (int64_t i = !starts.empty() && starts[0] == 0 ? 0 : -1; i < count; ++i) {
      const int64_t begin = i < 0 ? 0 : starts[static_cast<size_t>(i)];
      const int64_t end = i + 1 < count ? starts[static_cast<size_t>(i + 1)] : shard.tokens();
      std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
      shard.read(begin, tokens);
      std::erase(tokens, bytes->end_of_document());
      const DocumentSource source = provenance.of(i);
      texts[{source.file, source.offset, source.line}] += bytes->decode(tokens);
    }
  }
  return texts;
}

}  // namespace

TEST_CASE("the text at a document's source is the document, in text, lines, packed lines and shards cut anywhere") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "in");
  write_text(scratch / "in/a.txt", "one\ntwo");
  write_text(scratch / "in/b.jsonl", lines_of(200, 3));
  write_packed(scratch / "in/c.jsonl.gz", lines_of(9000, 5));  // several chunks of a MiB
  const auto bytes = make_byte_tokenizer();
  for (const int64_t tokens_per_shard : {int64_t{1} << 26, int64_t{100003}}) {
    const auto made = build_shards({.inputs = {scratch / "in"},
                                    .validation_inputs = {},
                                    .validation_fraction = 0.1,
                                    .output = scratch / "out",
                                    .tokens_per_shard = tokens_per_shard,
                                    .replace = true},
                                   *bytes, kQuiet);
    auto texts = texts_of(made.train.shards);
    texts.merge(texts_of(made.validation.shards));
    CHECK(texts.size() == 1 + 200 + 9000);
    int64_t wrong = 0;
    std::string open, all;
    for (const auto& [source, text] : texts) {
      const auto& [file, offset, line] = source;
      if (file != open) all = unpacked(open = file);
      if (line % 97 == 0 || line < 100) wrong += text_at({file, offset, line}, all) != text;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("imported documents come from a token of their file, and shards made without sources are read as before") {
  const Scratch scratch;
  const std::string facts = "{'descr': '<u2', 'fortran_order': False, 'shape': (7,), }";
  const std::string header = std::string("\x93NUMPY\x01\0\x76\0", 10) + facts + std::string(0x76 - facts.size() - 1, ' ') + "\n";
  const std::array<uint16_t, 7> tokens{1, 2, 256, 3, 256, 4, 5};
  write_text(scratch / "a.npy", header + std::string(reinterpret_cast<const char*>(tokens.data()), sizeof tokens));
  const auto bytes = make_byte_tokenizer();
  import_shards({.inputs = {scratch / "a.npy"}, .output = scratch / "out", .tokens_per_shard = 4}, *bytes, kQuiet);
  const ShardReader first(scratch / "out/train-00000.h5"), second(scratch / "out/train-00001.h5");
  const Provenance of_first = Provenance::read(first).value(), of_second = Provenance::read(second).value();
  CHECK(of_first.of(0) == DocumentSource{scratch / "a.npy", 0, DocumentSource::kTokens});
  CHECK(of_first.of(1) == DocumentSource{scratch / "a.npy", 3, DocumentSource::kTokens});
  CHECK(of_second.of(-1) == of_first.of(1));  // continues here
  CHECK(of_second.of(0) == DocumentSource{scratch / "a.npy", 5, DocumentSource::kTokens});
  CHECK_THROWS_AS(of_first.of(-1), Error);
  CHECK_THROWS_AS(of_second.of(1), Error);

  write_shard(scratch / "old.h5", first.facts(), std::vector<int32_t>{1, 2}, std::vector<int64_t>{0});
  CHECK(!Provenance::read(ShardReader(scratch / "old.h5")));
}

TEST_CASE("damaged sources are found when they are read, and by verify") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const ShardFacts facts{.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 3};
  Provenance provenance;
  provenance.add({"a.txt", 0, 0});
  provenance.add({"b.jsonl", 17, 3});
  const std::vector<int32_t> tokens{1, 256, 2};
  write_shard(path, facts, tokens, std::vector<int64_t>{0, 2}, {.more = provenance.datasets()});
  const std::string sound = read_text(path);
  CHECK(unnoticed_flips(path) == 0);
  for (const Hdf5Dataset& dataset : read_hdf5_layout(path).datasets) {
    if (dataset.name != "document_offsets") continue;
    std::string bytes = sound;
    bytes[static_cast<size_t>(dataset.offset)] ^= 1;
    write_text(path, bytes);
    CHECK_THROWS_WITH(Provenance::read(ShardReader(path)), ContainsSubstring("document_offsets are damaged"));
  }
  provenance.add({"c.txt", 0, 0});
  write_shard(path, facts, tokens, std::vector<int64_t>{0, 2}, {.more = provenance.datasets()});
  CHECK_THROWS_WITH(Provenance::read(ShardReader(path)), ContainsSubstring("do not fit its documents"));
}

TEST_CASE("HDF5's own tools show the sources of documents") {
  const Scratch scratch;
  Provenance provenance;
  provenance.add({"b.jsonl", 17, 3});
  write_shard(scratch / "a.h5", {.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 1},
              std::vector<int32_t>{1}, std::vector<int64_t>{0}, {.more = provenance.datasets()});
  if (!has_h5dump()) return;
  REQUIRE(std::system(("h5dump -r " + scratch / "a.h5" + " > " + scratch / "out").c_str()) == 0);
  CHECK_THAT(read_text(scratch / "out"), ContainsSubstring("b.jsonl") && ContainsSubstring("(0): 17"));
}
