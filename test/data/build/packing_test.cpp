// Documents in rows: which go together, and what a run sees of them.
#include "data/build/packing.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "data/build/build.h"
#include "data/build/inspect.h"
#include "data/loader/loader.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// Log-normal, of this median.
std::vector<int64_t> log_normal(size_t count, double median, double sigma, uint64_t seed) {
  std::vector<int64_t> lengths(count);
  for (size_t i = 0; i < count; ++i) {
    const double u = 1 - unit(philox64(seed, 2 * i)), v = unit(philox64(seed, 2 * i + 1));
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
    lengths[i] = std::max<int64_t>(1, std::llround(median * std::exp(sigma * normal)));
  }
  return lengths;
}

// Rows when each piece goes into the row of the one before it, or a new one.
int64_t next_fit_rows(const std::vector<int64_t>& lengths, int64_t row) {
  int64_t rows = 0, room = 0;
  for (const int64_t length : lengths) {
    if (length > room) ++rows, room = row;
    room -= length;
  }
  return rows;
}

// Best-fit decreasing as it is defined, by looking at every row.
int64_t plain_best_fit_rows(std::vector<int64_t> lengths, int64_t row) {
  std::ranges::sort(lengths, std::greater());
  std::vector<int64_t> rooms;
  for (const int64_t length : lengths) {
    int64_t* best = nullptr;
    for (int64_t& room : rooms)
      if (room >= length && (best == nullptr || room < *best)) best = &room;
    if (best == nullptr) best = &rooms.emplace_back(row);
    *best -= length;
  }
  return std::ssize(rooms);
}

using Texts = std::multiset<std::string>;

// Texts of these lengths less their end, each another.
std::vector<std::string> texts_of(const std::vector<int64_t>& lengths) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::string words = std::to_string(i) + ":";
    for (uint64_t k = 0; std::ssize(words) < lengths[i] - 1; ++k) words += static_cast<char>('a' + philox64(i, k) % 26);
    texts.push_back(words);
  }
  return texts;
}

BuildSummary packed(const Scratch& scratch, const std::vector<std::string>& texts, int64_t context,
                    int64_t shard_tokens = 1 << 26) {
  std::string lines;
  for (const std::string& words : texts) lines += Json{{"text", words}}.dump() + "\n";
  write_text(scratch / "in.jsonl", lines);
  BuildOptions options{.inputs = {scratch / "in.jsonl"}, .validation_inputs = {}, .output = scratch / "out"};
  options.tokens_per_shard = shard_tokens, options.pack_context = context, options.replace = true;
  return build_shards(options, *make_byte_tokenizer(), [](const BuildProgress&) {});
}

// Documents seen in the samples of a corpus: the text between one document_start and the next, with
// # for each end.
std::vector<std::string> seen_in(const Corpus& corpus) {
  std::vector<std::string> seen;
  const int64_t T = corpus.context();
  for (int64_t sample = 0; sample < corpus.samples(); ++sample) {
    std::vector<int32_t> field[4];  // tokens, targets, positions, document_start
    for (auto& values : field) values.resize(static_cast<size_t>(T));
    corpus.read(sample, true, true, {field[0].data(), field[1].data(), field[2].data(), field[3].data()});
    for (size_t t = 0; t < static_cast<size_t>(T); ++t) {
      const int32_t start = field[3][t], next = t + 1 < static_cast<size_t>(T) ? field[3][t + 1] : -1;
      const bool starts = start == static_cast<int32_t>(t);
      if (starts) seen.emplace_back();
      seen.back() += field[0][t] == 256 ? '#' : static_cast<char>(field[0][t]);
      CHECK(field[2][t] == static_cast<int32_t>(t) - start);
      const bool filling = !starts && field[0][t] == 256 && field[0][t - 1] == 256;
      const bool predicts = next == start && field[0][t] != 256;  // within a document
      CHECK(field[1][t] == (predicts && !filling ? field[0][t + 1] : -1));
    }
    CHECK(corpus.targets(sample) == std::ranges::count_if(field[1], [](int32_t id) { return id >= 0; }));
  }
  for (std::string& words : seen)  // without filling
    while (words.ends_with("##")) words.pop_back();
  return seen;
}

}  // namespace

TEST_CASE("best-fit decreasing places every piece, in as few rows as its definition, and never more than next-fit") {
  for (const int64_t row : {1, 2, 63, 64, 65, 200, 2048}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      CAPTURE(row, seed);
      std::vector<int64_t> lengths = log_normal(700, static_cast<double>(row) / 4, 0.3 + 0.2 * static_cast<double>(seed), seed);
      for (int64_t& length : lengths) length = std::min(length, row);
      const Fit fit = best_fit(lengths, row);
      std::vector<int64_t> used(static_cast<size_t>(fit.rows), 0);
      int64_t next = 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        REQUIRE(fit.row_of[i] < fit.rows);
        used[static_cast<size_t>(fit.row_of[i])] += lengths[i];
        CHECK(fit.row_of[i] <= next);  // numbered by first pieces
        next = std::max(next, fit.row_of[i] + 1);
      }
      for (const int64_t tokens : used) CHECK((0 < tokens && tokens <= row));
      CHECK(fit.rows == plain_best_fit_rows(lengths, row));
      CHECK(fit.rows <= next_fit_rows(lengths, row));
    }
  }
  CHECK(best_fit({}, 8).rows == 0);
  CHECK_THROWS_AS(best_fit(std::vector<int64_t>{9}, 8), Error);
  CHECK_THROWS_AS(best_fit(std::vector<int64_t>{0}, 8), Error);
}

TEST_CASE("packed rows hold every document once and whole, seen by nobody else, and are little more than the documents") {
  constexpr int64_t T = 96;
  std::vector<int64_t> lengths = log_normal(400, 30, 0.7, 5);
  for (int64_t& length : lengths) length = std::clamp<int64_t>(length, 6, T);
  lengths.insert(lengths.end(), {T, T, T - 1, 6});
  const std::vector<std::string> texts = texts_of(lengths);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (const int64_t shard_tokens : {int64_t{1} << 20, 3 * T + 1}) {
    CAPTURE(shard_tokens);
    const Scratch scratch;
    const BuildSummary made = packed(scratch, texts, T, shard_tokens);
    CHECK((made.train.shards.size() > 1) == (shard_tokens < tokens));
    const Corpus corpus({scratch / "out"}, T, false);
    CHECK(corpus.packed());
    CHECK(corpus.samples() == made.train.rows);
    CHECK(corpus.targets() == tokens - std::ssize(lengths));
    Texts wanted, seen;
    for (const std::string& words : texts) wanted.insert(words + "#");
    for (const std::string& words : seen_in(corpus)) seen.insert(words);
    CHECK(seen == wanted);
    CHECK(made.train.cut_documents == 0);
    CHECK(made.train.filling == made.train.rows * T - tokens);
    CHECK(made.train.tokens == corpus.tokens());
    if (shard_tokens > tokens) CHECK(made.train.rows <= next_fit_rows(lengths, T));
    for (const ShardVerdict& verdict : verify_shards({scratch / "out"})) CHECK(verdict.problem.empty());
    const DocumentLengths told = document_lengths({scratch / "out"});
    CHECK(told.documents == std::ssize(lengths));
    CHECK(told.longest == T);
    CHECK(told.shortest == std::ranges::min(lengths));
    int64_t contents = 0;
    for (const ShardReader& shard : corpus.shards())
      for (int64_t i = 0; i < shard.documents(); ++i) contents += shard.content(i).count();
    CHECK(contents == tokens);  // the filling is nobody's
    // All tokens but the first of each document, which are ASCII.
    CHECK(corpus.tokens_per_byte() ==
          Approx(static_cast<double>(tokens - std::ssize(lengths)) / static_cast<double>(tokens - 2 * std::ssize(lengths))));
  }
}

TEST_CASE("documents longer than a row are cut into whole rows and a rest, wherever shards end") {
  constexpr int64_t T = 32;
  std::vector<int64_t> lengths{5 * T, 5 * T + 1, 200, 6, 2 * T - 1, 1000, T, T + 1, 9};
  const std::vector<std::string> texts = texts_of(lengths);
  std::map<std::string, int> pieces;
  for (const std::string& words : texts)
    for (size_t at = 0; at < words.size() + 1; at += T) ++pieces[(words + "#").substr(at, T)];
  for (const int64_t shard_tokens : {T, 3 * T + 5, int64_t{100000}}) {
    CAPTURE(shard_tokens);
    const Scratch scratch;
    const BuildSummary made = packed(scratch, texts, T, shard_tokens);
    CHECK(made.train.cut_documents == 6);
    CHECK(made.train.documents == std::ssize(lengths));
    const Corpus corpus({scratch / "out"}, T, true, 5);  // in rows, whatever the overlap
    CHECK(corpus.samples() == made.train.rows);
    std::map<std::string, int> seen;
    for (const std::string& words : seen_in(corpus)) ++seen[words];
    CHECK(seen == pieces);
  }
}

TEST_CASE("packed shards do not depend on the number of threads") {
  const std::vector<std::string> texts = texts_of(log_normal(300, 200, 1, 8));
  const Scratch scratch;  // one for both: shards store the paths of documents
  std::vector<std::string> files;
  for (const int threads : {1, 2}) {
    omp_set_num_threads(threads);
    std::filesystem::remove_all(scratch / "out");
    files.push_back(read_text(packed(scratch, texts, 512).train.shards[0]));
  }
  omp_set_num_threads(2);
  CHECK(files[0] == files[1]);
}

TEST_CASE("a packed shard is read for its context only, and beside shards that are not packed") {
  const Scratch scratch;
  packed(scratch, texts_of({10, 20, 30, 12}), 32);
  CHECK_THROWS_WITH(
      Corpus({scratch / "out"}, 16, false),
      ContainsSubstring("train-00000.h5: is packed for samples of 32 tokens, not 16: set model.context to 32, or build it "
                        "again for another --context"));
  write_shard(scratch / "out/train-00001.h5", {"bytes", 257, 256, 65}, std::vector<int32_t>(65, 'x'), std::vector<int64_t>{0});
  const Corpus corpus({scratch / "out"}, 32, false);
  CHECK(corpus.samples() == 3 + 2);
  CHECK(corpus.targets() == 10 + 20 + 30 + 12 - 4 + 64);
  CHECK(corpus.targets(4) == 32);
  Loader loader(corpus, {.context = 32, .batch = 5, .seed = 1, .document_mask = true, .restart_positions = true});
  CHECK(loader.next().valid == corpus.targets());
}

TEST_CASE("packed prompts are no targets, and neither is a response's first token where nothing stands before it") {
  const Scratch scratch;
  write_text(scratch / "in.jsonl", "{\"p\": \"QQ\", \"r\": \"yes\"}\n{\"p\": \"\", \"r\": \"no\"}\n");
  BuildOptions options{.inputs = {scratch / "in.jsonl"}, .validation_inputs = {}, .output = scratch / "out"};
  options.documents = {.prompt = "p", .response = "r"}, options.pack_context = 16;
  const auto made = build_shards(options, *make_byte_tokenizer(), [](const BuildProgress&) {});
  const ShardReader shard(made.train.shards[0]);
  std::vector<uint8_t> trained(16);
  shard.read_trained(0, trained);
  CHECK(trained == std::vector<uint8_t>{0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0});
  CHECK(made.train.filling == 7);
  CHECK(made.train.trained_tokens == 6);
}

TEST_CASE("a context that cannot be packed for is refused") {
  const Scratch scratch;
  CHECK_THROWS_AS(packed(scratch, {"a"}, 1), ConfigError);
  CHECK_THROWS_WITH(packed(scratch, {"a"}, 65, 64),
                    ContainsSubstring("a context of 65 to pack for: 2 to the tokens of a shard, 64"));
}

TEST_CASE("documents that the samples of a concatenated shard cut are counted") {
  CHECK(count_cut(std::vector<int64_t>{0, 4, 8, 9, 20}, 24, 8) == 1);  // 9 to 20
  CHECK(count_cut(std::vector<int64_t>{0, 7, 15}, 17, 8) == 2);
  CHECK(count_cut({}, 0, 8) == 0);
  const Scratch scratch;
  write_shard(scratch / "a.h5", {"bytes", 257, 256, 65}, std::vector<int32_t>(65, 'x'), std::vector<int64_t>{0, 10, 40});
  CHECK(count_cut_documents({scratch.path()}, 16) == 2);
}
