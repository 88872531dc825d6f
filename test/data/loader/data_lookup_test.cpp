// Lookup of the documents that a step reads, compared with the rows of the loader; and of the steps
// that read a document.
#include "data/loader/data_lookup.h"

#include <numeric>
#include <set>

#include "base/philox.h"
#include "data/loader/shuffle.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// Token i is first + i; documents of random lengths, the first of which may begin in another shard. Their offsets are first tokens.
std::string numbered_shard(const Scratch& scratch, const std::string& name, int32_t first, int32_t count, int64_t first_start) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  std::vector<int64_t> starts;
  Provenance provenance;
  if (first_start > 0) provenance.add({name, first, -1});
  for (int64_t at = first_start; at < count;
       at += 1 + static_cast<int64_t>(philox64(static_cast<uint64_t>(first), static_cast<uint64_t>(at)) % 9)) {
    starts.push_back(at);
    provenance.add({name, first + at, -1});
  }
  write_shard(scratch / name, {.tokenizer = "counting", .vocab = 100000, .end_of_document = 0, .text_bytes = count}, tokens, starts,
              {.more = provenance.datasets()});
  return scratch / name;
}

struct Shards {
  Scratch scratch;
  std::vector<Corpus> sources;
  Shards() {
    numbered_shard(scratch, "a.h5", 1000, 47, 0);
    numbered_shard(scratch, "b.h5", 2000, 61, 3);
    numbered_shard(scratch, "c.h5", 3000, 90, 2);
    sources.emplace_back(std::vector{scratch / "a.h5", scratch / "b.h5"}, 6, false);
    sources.emplace_back(std::vector{scratch / "c.h5"}, 6, false);
  }
};

LoaderOptions where_options(int replica, int replicas, int64_t microbatch) {
  return {.context = 6,
          .batch = 8,
          .microbatch = microbatch,
          .replica = replica,
          .replicas = replicas,
          .seed = 9,
          .document_mask = true,
          .restart_positions = false};
}

}  // namespace

TEST_CASE("an order backwards gives the index of each sample") {
  for (const int64_t count : {1, 2, 3, 17, 64, 1000})
    for (int64_t i = 0; i < count; ++i) REQUIRE(index_of(7, 3, permuted(7, 3, i, count), count) == i);
  const int64_t large = (int64_t{1} << 40) + 12345;
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(index_of(7, 3, permuted(7, 3, i * 999999937, large), large) == i * 999999937);
}

TEST_CASE("a mixture backwards gives the number of each sample") {
  const Shards shards;
  const Mixture mixture(shards.sources, {0.7, 0.3});
  for (int64_t g = 0; g < 500; ++g) REQUIRE(mixture.number_of(mixture.at(g, 9), 9) == g);
}

TEST_CASE("the documents of a step are those whose tokens the loaders hand out") {
  const Shards shards;
  const Mixture mixture(shards.sources, {0.6, 0.4});
  for (const auto& [replicas, microbatch] : {std::pair(1, 0), {2, 0}, {2, 2}, {4, 1}}) {
    CAPTURE(replicas, microbatch);
    Where where(mixture, where_options(0, replicas, microbatch));
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int r = 0; r < replicas; ++r) loaders.push_back(std::make_unique<Loader>(mixture, where_options(r, replicas, microbatch)));
    std::set<int64_t> epochs;
    int64_t documents = 0;
    for (int64_t step = 0; step < 12; ++step) {  // of 96 samples, in sources of 17 and 14
      std::vector<Batch> batches;
      for (const auto& loader : loaders) batches.push_back(loader->next());
      const std::vector<WhereRow> rows = where.step(step);
      REQUIRE(rows.size() == 8);
      for (const WhereRow& row : rows) {
        epochs.insert(row.sample.epoch);
        const Batch& batch = batches[static_cast<size_t>(row.place.replica)];
        std::vector<int32_t> handed(batch.tokens.as<int32_t>() + row.place.row * 6,
                                    batch.tokens.as<int32_t>() + row.place.row * 6 + 6);
        handed.push_back(batch.targets.as<int32_t>()[row.place.row * 6 + 5]);
        const int32_t* const document_start = batch.document_start.as<int32_t>() + row.place.row * 6;
        const int32_t first = handed[0] - static_cast<int32_t>(row.begin);  // the shard's
        CHECK(first % 1000 == 0);
        std::vector<int32_t> told;
        for (const RowDocument& document : row.documents) {
          ++documents;
          CHECK(document.source.file == (first == 1000 ? "a.h5" : first == 2000 ? "b.h5" : "c.h5"));
          const int64_t start = document.source.offset - first;  // in the shard
          CHECK(start == where.shard(row.sample.source, row.shard).document(document.number).begin);
          if (document.begin < row.begin + 6)
            CHECK(document_start[document.begin - row.begin] == std::max<int64_t>(start - row.begin, 0));
          for (int64_t at = document.begin; at < document.end; ++at) told.push_back(first + static_cast<int32_t>(at));
        }
        CHECK(told == handed);
      }
    }
    CHECK(epochs.size() >= 3);
    CHECK(documents > 150);
  }
}

TEST_CASE("the steps that read a document are those whose lists hold it") {
  const Shards shards;
  Where where(Mixture(shards.sources, {0.6, 0.4}), where_options(0, 1, 0));
  std::map<DocumentName, std::vector<int64_t>> listed;
  for (int64_t step = 0; step < 15; ++step)
    for (const WhereRow& row : where.step(step))
      for (const RowDocument& document : row.documents) {
        std::vector<int64_t>& steps = listed[{row.sample.source, row.shard, document.number}];
        if (steps.empty() || steps.back() != step) steps.push_back(step);
      }
  size_t found = 0;
  for (const char* file : {"a.h5", "b.h5", "c.h5", "none"})
    for (const DocumentName& document : where.documents_of(file)) {
      CHECK(where.steps_with(document, 15) == listed[document]);
      ++found;
    }
  CHECK(found >= listed.size());
  CHECK(found > 25);
}

TEST_CASE("if shards have no sources, documents have numbers alone") {
  const Scratch scratch;
  write_shard(scratch / "a.h5", {.tokenizer = "counting", .vocab = 100, .end_of_document = 0, .text_bytes = 9},
              std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}, std::vector<int64_t>{4});
  const Corpus corpus({scratch / "a.h5"}, 6, false);
  LoaderOptions options = where_options(0, 1, 0);
  options.batch = 1;
  Where where(corpus, options);
  const WhereRow row = where.step(0).front();
  REQUIRE(row.documents.size() == 2);
  CHECK(row.documents[0].number == -1);
  CHECK(row.documents[0].end == 4);
  CHECK(row.documents[1].number == 0);
  CHECK(row.documents[1].end == 7);
  CHECK(row.documents[1].source == DocumentSource{});
}
