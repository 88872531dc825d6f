// A corpus of more shards than a process may open, and of more documents than it should hold.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "data/loader/loader.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/sanitized.h"

using namespace trireme;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kShards = 10000, kDocuments = 100000, kLength = 10;  // of each shard; tokens of each document

// Token i is i % 50000.
void write_corpus(const fs::path& directory) {
  fs::create_directory(directory);
  std::vector<int32_t> tokens(static_cast<size_t>(kDocuments * kLength));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 50000);
  std::vector<int64_t> starts(static_cast<size_t>(kDocuments));
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int64_t>(i) * kLength;
  const std::string first = directory / "train-00000.h5";
  write_shard(first, {.tokenizer = "t", .vocab = 50000, .end_of_document = 0, .text_bytes = 1}, tokens, starts);
  for (int64_t i = 1; i < kShards; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "train-%05d.h5", static_cast<int>(i));
    fs::create_hard_link(first, directory / name);
  }
}

double resident_mib() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / 0x1p20;
}

// Seconds and MiB since the beginning, of a corpus and its first batch.
void report_first_batch(const Corpus& corpus, Clock::time_point begin, double before) {
  Loader loader(Mixture(corpus), {.context = 1024, .batch = 32, .seed = 5, .document_mask = true, .restart_positions = false});
  const Batch batch = loader.next();
  const double seconds = seconds_since(begin), mib = resident_mib() - before;
  int64_t wrong = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(batch.tokens.size()); ++i) {
    const int32_t of_document = i % 1024 - batch.tokens.as<int32_t>()[i] % static_cast<int32_t>(kLength);
    wrong += batch.document_start.as<int32_t>()[i] != std::max(of_document, 0) ? 1 : 0;
  }
  std::printf("%.3f %.1f %lld %lld\n", seconds, mib, static_cast<long long>(corpus.documents()), static_cast<long long>(wrong));
}

}  // namespace

// In a process of its own: prints seconds and MiB.
TEST_CASE("ten thousand shards are opened", "[.child]") {
  const double before = resident_mib();
  const auto begin = Clock::now();
  const Corpus corpus({std::getenv("TRIREME_TEST_CORPUS")}, 1024, false);
  report_first_batch(corpus, begin, before);
  std::vector<KnownShard> known;  // as another rank gets them
  for (const ShardReader& shard : corpus.shards()) known.push_back(shard.known());
  const double before_second = resident_mib();
  const auto begin_second = Clock::now();
  const Corpus second = Corpus::of_known(known, 1024, false);
  CHECK(second.digest() == corpus.digest());
  report_first_batch(second, begin_second, before_second);
}

TEST_CASE("a billion documents in ten thousand shards are opened in a second and 50 MB, with few open files") {
  const Scratch scratch;
  write_corpus(scratch / "corpus");
  const std::string self = fs::read_symlink("/proc/self/exe");
  FILE* const child = popen(
      ("ulimit -n 256; TRIREME_TEST_CORPUS=" + scratch / "corpus" + " exec " + self + " 'ten thousand shards are opened'").c_str(),
      "r");
  int reports = 0;
  char line[512];
  while (std::fgets(line, sizeof line, child) != nullptr) {
    double seconds = 0, mib = 0;
    long long documents = 0, wrong = -1;
    if (std::sscanf(line, "%lf %lf %lld %lld", &seconds, &mib, &documents, &wrong) != 4) continue;
    ++reports;
    CHECK(documents == kShards * kDocuments);
    CHECK(wrong == 0);
    WARN((reports == 1 ? "rank 0: " : "another rank: ") << seconds << " s and " << mib << " MiB, with the first batch");
    if (kSanitized) continue;
    CHECK(seconds < (reports == 1 ? 1 : 0.5));
    CHECK(mib < 50);
  }
  CHECK(pclose(child) == 0);
  CHECK(reports == 2);
}
