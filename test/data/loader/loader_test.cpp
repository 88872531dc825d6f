#include "data/loader/loader.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// A shard whose token i is first + i, with documents of the given starts.
std::string counting_shard(const Scratch& scratch, const std::string& name, int32_t first, int32_t count,
                           std::vector<int64_t> starts) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  write_shard(scratch / name, {.tokenizer = "counting", .vocab = 100000, .end_of_document = 0, .text_bytes = count}, tokens,
              starts);
  return scratch / name;
}

using Row = std::vector<int32_t>;
struct Sample {
  Row tokens, targets, positions, document_start;
};

Sample sample_of(const Corpus& corpus, int64_t i, bool document_mask = true, bool restart_positions = false) {
  const auto T = static_cast<size_t>(corpus.context());
  Sample s{Row(T), Row(T), Row(T), Row(T)};
  corpus.read(i, document_mask, restart_positions,
              {s.tokens.data(), s.targets.data(), s.positions.data(), s.document_start.data()});
  return s;
}

Row row_of(const Tensor& tensor, int64_t row) {
  const int32_t* begin = tensor.as<int32_t>() + row * tensor.dim(1);
  return Row(begin, begin + tensor.dim(1));
}

LoaderOptions options_of(int64_t context, int64_t batch, int replica = 0, int replicas = 1, uint64_t seed = 5) {
  return {.context = context,
          .batch = batch,
          .replica = replica,
          .replicas = replicas,
          .seed = seed,
          .document_mask = true,
          .restart_positions = false};
}

// The page cache loses the file.
void forget(const std::string& path) {
  File file = File::open_to_write(path);
  file.sync();
  posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

bool in_page_cache(const std::string& path, int64_t byte) {
  const File file = File::open_to_read(path);
  const int64_t page = sysconf(_SC_PAGESIZE);
  void* const memory = mmap(nullptr, static_cast<size_t>(page), PROT_READ, MAP_SHARED, file.descriptor(), byte / page * page);
  REQUIRE(memory != MAP_FAILED);
  unsigned char resident = 0;
  REQUIRE(mincore(memory, static_cast<size_t>(page), &resident) == 0);
  munmap(memory, static_cast<size_t>(page));
  return (resident & 1) != 0;
}

// The first tokens of all rows of the next batch.
Row firsts(Loader& loader) {
  const Batch batch = loader.next();
  Row tokens;
  for (int64_t r = 0; r < batch.tokens.dim(0); ++r) tokens.push_back(row_of(batch.tokens, r)[0]);
  return tokens;
}

}  // namespace

TEST_CASE("samples cover a shard, and only evaluation keeps its tail") {
  const Scratch scratch;
  const auto a = counting_shard(scratch, "a.h5", 100, 12, {0, 6}), b = counting_shard(scratch, "b.h5", 500, 9, {2});
  const Corpus training({a, b}, 4, false), evaluation({scratch.path()}, 4, true);
  CHECK(training.samples() == 2 + 2);
  CHECK(evaluation.samples() == 3 + 2);
  CHECK(training.targets() == 16);
  CHECK(evaluation.targets() == 11 + 8);
  CHECK(training.tokens() == 21);
  CHECK(training.text_bytes() == 21);
  CHECK(training.fingerprint() == "counting");
  CHECK(training.digest() == evaluation.digest());
  CHECK(sample_of(training, 1).tokens == Row{104, 105, 106, 107});
  CHECK(sample_of(training, 1).targets == Row{105, 106, 107, 108});
  CHECK(sample_of(training, 2).tokens == Row{500, 501, 502, 503});
  CHECK(sample_of(evaluation, 2).tokens == Row{108, 109, 110, 0});
  CHECK(sample_of(evaluation, 2).targets == Row{109, 110, 111, -1});
  CHECK(evaluation.targets(2) == 3);
  CHECK(sample_of(evaluation, 4).targets == Row{505, 506, 507, 508});
  CHECK_THROWS_AS(sample_of(training, 4), Error);

  std::map<int32_t, int> targets;
  for (int64_t i = 0; i < evaluation.samples(); ++i)
    for (const int32_t target : sample_of(evaluation, i).targets) ++targets[target];
  CHECK(targets.size() == 11 + 8 + 1);
  targets.erase(-1);
  for (const auto& [target, times] : targets) CHECK(times == 1);
}

TEST_CASE("overlapping samples predict every token once, from at least the overlap before it") {
  for (const int64_t tokens : {2, 3, 4, 5, 7, 8, 11, 12, 13}) {
    CAPTURE(tokens);
    const Scratch scratch;
    const Corpus corpus({counting_shard(scratch, "a.h5", 0, tokens, {0})}, 6, true, 4);
    CHECK(corpus.targets() == tokens - 1);
    std::map<int32_t, int> times;
    int64_t targets = 0;
    for (int64_t i = 0; i < corpus.samples(); ++i) {
      const auto sample = sample_of(corpus, i);
      targets += corpus.targets(i);
      for (int32_t t = 0; t < 6; ++t) {
        const int32_t target = sample.targets[static_cast<size_t>(t)];
        if (target < 0) continue;
        ++times[target];
        CHECK(target == sample.tokens[static_cast<size_t>(t)] + 1);
        CHECK(t >= std::min(target - 1, 4));
      }
    }
    CHECK(targets == tokens - 1);
    CHECK(times.size() == static_cast<size_t>(tokens - 1));
    for (const auto& [target, count] : times) CHECK(count == 1);
  }
  const Scratch scratch;
  CHECK_THROWS_AS(Corpus({counting_shard(scratch, "a.h5", 0, 9, {0})}, 4, true, 4), Error);
}

TEST_CASE("rows know where their documents start") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 17, {0, 3, 4, 8, 10, 16})}, 8, false);
  CHECK(sample_of(corpus, 0).document_start == Row{0, 0, 0, 3, 4, 4, 4, 4});
  CHECK(sample_of(corpus, 0).positions == Row{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(sample_of(corpus, 0, true, true).positions == Row{0, 1, 2, 0, 0, 1, 2, 3});
  CHECK(sample_of(corpus, 0, false, true).document_start == Row(8, 0));
  CHECK(sample_of(corpus, 1).document_start == Row{0, 0, 2, 2, 2, 2, 2, 2});
  CHECK(sample_of(corpus, 1, false, true).positions == Row{0, 1, 0, 1, 2, 3, 4, 5});
  const Scratch other;
  const Corpus begun_before({counting_shard(other, "a.h5", 0, 9, {7})}, 4, false);
  CHECK(sample_of(begun_before, 0).document_start == Row(4, 0));
  CHECK(sample_of(begun_before, 1).document_start == Row{0, 0, 0, 3});
  CHECK(sample_of(begun_before, 1, true, true).positions == Row{0, 1, 2, 0});
}

TEST_CASE("each epoch reads every sample once, in another order") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 4 * 10 + 1, {0})}, 4, false);
  Loader loader(corpus, options_of(4, 5));
  std::vector<Row> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    Row read = firsts(loader);
    const Row second = firsts(loader);
    read.insert(read.end(), second.begin(), second.end());
    epochs.push_back(read);
    std::sort(read.begin(), read.end());
    CHECK(read == Row{0, 4, 8, 12, 16, 20, 24, 28, 32, 36});
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  CHECK(loader.step() == 6);
}

TEST_CASE("the rows of a step do not depend on the number of replicas") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 4 * 9 + 1, {0})}, 4, false);
  for (const int replicas : {2, 3, 6}) {
    Loader whole(corpus, options_of(4, 6));
    std::vector<std::unique_ptr<Loader>> parts;
    for (int r = 0; r < replicas; ++r) parts.push_back(std::make_unique<Loader>(corpus, options_of(4, 6, r, replicas)));
    for (int step = 0; step < 4; ++step) {
      Row together;
      for (auto& part : parts) {
        const Row rows = firsts(*part);
        together.insert(together.end(), rows.begin(), rows.end());
      }
      CHECK(together == firsts(whole));
    }
  }
}

TEST_CASE("batches hold what the corpus reads, in every plane and by any number of readers, also after seeks") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 8 * 90 + 1, {0, 3, 4, 60, 61, 62, 300, 555, 556, 700})}, 8, false);
  const Mixture mixture(corpus);
  for (const int readers : {1, 2, 5})
    for (const bool document_mask : {false, true})
      for (const bool restart_positions : {false, true}) {
        CAPTURE(readers, document_mask, restart_positions);
        LoaderOptions options = options_of(8, 6);
        options.readers = readers;
        options.document_mask = document_mask;
        options.restart_positions = restart_positions;
        Loader loader(mixture, options);
        for (int64_t i = 0; i < 40; ++i) {
          if (i % 5 == 4) loader.seek(i * 7 % 23);
          const int64_t step = loader.step();
          const Batch batch = loader.next();
          bool same = true;
          for (int64_t row = 0; row < 6; ++row) {
            const auto wanted =
                sample_of(corpus, mixture.at(step * 6 + row, options.seed).sample, document_mask, restart_positions);
            same = same && row_of(batch.tokens, row) == wanted.tokens && row_of(batch.targets, row) == wanted.targets &&
                   row_of(batch.positions, row) == wanted.positions && row_of(batch.document_start, row) == wanted.document_start;
          }
          CHECK(same);
        }
      }
}

TEST_CASE("the pages that will be read, and no others, are prefetched") {
  const Scratch scratch;
  constexpr int64_t count = 90000;
  const auto path = counting_shard(scratch, "a.h5", 0, count, {0});
  const ShardReader shard(path);
  const auto layout = read_hdf5_layout(path);
  const int64_t offset = std::ranges::find(layout.datasets, std::string("tokens"), &Hdf5Dataset::name)->offset;
  const auto resident = [&](int64_t token) { return in_page_cache(path, offset + 4 * token); };
  const auto all_gone = [&] { return !resident(0) && !resident(50000) && !resident(count - 5); };
  for (int i = 0; i < 20 && !all_gone(); ++i) {
    forget(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * i));
  }
  if (!all_gone()) {
    WARN("skipped: the page cache keeps what it is told to forget, as of a file system in memory");
    return;
  }
  shard.advise(50000, 50010);
  for (int i = 0; i < 1000 && !resident(50000); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(resident(50000));
  CHECK(resident(50000 / 16384 * 16384));  // the whole page is to be checked
  CHECK_FALSE(resident(0));
  CHECK_FALSE(resident(count - 5));
  Row some(10), wanted(10);
  shard.read(50000, some);
  std::iota(wanted.begin(), wanted.end(), 50000);
  CHECK(some == wanted);
  forget(path);
  shard.advise(50000, 50010);  // again: it was dropped since
  for (int i = 0; i < 1000 && !resident(50000); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(resident(50000));
  shard.advise(count, count);
  CHECK_THROWS_AS(shard.advise(0, count + 1), Error);
  CHECK_THROWS_AS(shard.advise(-1, 5), Error);
}

TEST_CASE("a shard that this node lacks is reported when its samples come, not when they are prefetched") {
  const Scratch scratch;
  std::vector<KnownShard> known;
  for (int i = 0; i < 3; ++i)
    known.push_back(ShardReader(counting_shard(scratch, "s" + std::to_string(i) + ".h5", 100 * i, 400, {0})).known());
  std::filesystem::remove(scratch / "s1.h5");
  const Corpus corpus = Corpus::of_known(known, 16, false);
  Loader loader(corpus, options_of(16, 8));
  const auto all = [&] {
    for (int64_t step = 0; step < corpus.samples() / 8; ++step) loader.next();
  };
  CHECK_THROWS_WITH(all(), ContainsSubstring("s1.h5"));
}

TEST_CASE("what goes wrong with one step is thrown for that step, whatever was read ahead") {
  const Scratch scratch;
  const auto path = counting_shard(scratch, "a.h5", 0, 40000, {0});
  const Corpus corpus({path}, 1000, false);
  const Mixture mixture(corpus);
  const auto layout = read_hdf5_layout(path);
  const int64_t offset = std::ranges::find(layout.datasets, std::string("tokens"), &Hdf5Dataset::name)->offset;
  File::open_to_write(path).write_at("?", 1, offset + 4 * 39000);  // in the page of tokens 32768 and on
  Loader loader(mixture, options_of(1000, 1));
  int failed = 0;
  for (int64_t step = 0; step < 39; ++step) {
    CAPTURE(step);
    const int64_t sample = mixture.at(step, 5).sample;
    REQUIRE(loader.step() == step);
    if (sample >= 32) {
      for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH(loader.next(), ContainsSubstring("32768 to 39999 are damaged"));
      loader.seek(step + 1);
      ++failed;
    } else {
      CHECK(firsts(loader) == Row{static_cast<int32_t>(1000 * sample)});
    }
  }
  CHECK(failed == 7);
}

TEST_CASE("the loader's state is the number of the step") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 4 * 30 + 1, {0})}, 4, false);
  Loader straight(corpus, options_of(4, 7)), jumping(corpus, options_of(4, 7));
  std::vector<Row> steps;
  for (int i = 0; i < 20; ++i) steps.push_back(firsts(straight));
  for (const int64_t to : {13, 2, 2, 19, 0, 1, 7}) {
    jumping.seek(to);
    CHECK(jumping.step() == to);
    CHECK(firsts(jumping) == steps[static_cast<size_t>(to)]);
  }
  for (int i = 0; i < 200; ++i) {  // seeks while the thread reads
    jumping.seek(i % 19);
    jumping.seek((i * 7) % 20);
    if (i % 3 == 0) CHECK(firsts(jumping) == steps[static_cast<size_t>((i * 7) % 20)]);
  }
  Loader other(corpus, options_of(4, 7, 0, 1, 6));
  CHECK(firsts(other) != steps[0]);
}

TEST_CASE("a batch may be larger than the corpus, and a padded sample counts its own targets") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 8, {0})}, 4, true);
  REQUIRE(corpus.samples() == 2);
  Loader loader(corpus, options_of(4, 6));
  const Batch batch = loader.next();
  CHECK(batch.tokens.dim(0) == 6);
  CHECK(batch.valid == 3 * 4 + 3 * 3);
  Row targets(batch.targets.as<int32_t>(), batch.targets.as<int32_t>() + 24);
  CHECK(std::count(targets.begin(), targets.end(), -1) == 3);
  // Replicas count their own rows.
  int64_t sum = 0;
  for (const int replica : {0, 1}) {
    Loader half(corpus, options_of(4, 6, replica, 2));
    CHECK(half.padded());
    const Batch part = half.next();
    CHECK(part.valid ==
          std::count_if(part.targets.as<int32_t>(), part.targets.as<int32_t>() + 12, [](int32_t id) { return id >= 0; }));
    sum += part.valid;
  }
  CHECK(sum == batch.valid);
  const Corpus training({scratch / "a.h5"}, 4, false);
  Loader whole(training, options_of(4, 6, 1, 3));
  CHECK(whole.next().valid == 8);
}

TEST_CASE("a batch stays as it is until the next one is asked for") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 4 * 30 + 1, {0})}, 4, false);
  Loader loader(corpus, options_of(4, 3)), again(corpus, options_of(4, 3));
  const Batch batch = loader.next();
  const auto all = [&] {
    Row values;
    for (const Tensor& plane : {batch.tokens, batch.targets, batch.positions, batch.document_start})
      for (int64_t row = 0; row < 3; ++row) std::ranges::copy(row_of(plane, row), std::back_inserter(values));
    return values;
  };
  const Row before = all();
  for (const int64_t step : {9, 3, 5, 9}) {
    loader.seek(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // all that is free is read into
  }
  firsts(again);
  CHECK(all() == before);
}

TEST_CASE("what goes wrong on the reading thread is thrown by next") {
  const Scratch scratch;
  const auto path = counting_shard(scratch, "a.h5", 0, 4 * 30 + 1, {0});
  const Corpus corpus({path}, 4, false);
  std::filesystem::resize_file(path, 5000);
  Loader loader(corpus, options_of(4, 3));
  CHECK_THROWS_AS(loader.next(), DataError);
  CHECK_THROWS_WITH(loader.next(), ContainsSubstring("a.h5: is truncated"));
  CHECK(loader.step() == 0);
}

TEST_CASE("loaders that cannot be are refused") {
  const Scratch scratch;
  const Corpus corpus({counting_shard(scratch, "a.h5", 0, 50, {0})}, 4, false);
  CHECK_THROWS_WITH(Loader(corpus, options_of(5, 3)), ContainsSubstring("context"));
  CHECK_THROWS_WITH(Loader(corpus, options_of(4, 3, 0, 2)), ContainsSubstring("a batch of 3 for 2 replicas"));
  LoaderOptions nobody = options_of(4, 4);
  nobody.readers = 0;
  CHECK_THROWS_WITH(Loader(corpus, nobody), ContainsSubstring("0 readers"));
  CHECK_THROWS_WITH(Loader(corpus, options_of(4, 4, 2, 2)), ContainsSubstring("replica 2 of 2"));
}
