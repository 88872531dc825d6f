// trireme bench data: reads token shards in order, and shuffled as training does, against plain reads of the disk and the page
// cache.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/number_format.h"
#include "data/loader/loader.h"
#include "data/loader/shuffle.h"
#include "train/cli/bench_table.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct BenchDataOptions {
  static constexpr auto name = "bench data";
  static constexpr auto about = "Read token shards in order and shuffled, against plain reads of disk and page cache";
  std::vector<std::string> inputs;
  std::string json;
  int64_t context = 1024, batch = 64, rounds = 8;
  void visit(Options& o) {
    o("shards", inputs, "Shards: files, directories, patterns").required();
    o("--context", context, "Tokens of a sample", between(1, 1 << 30));
    o("--batch", batch, "Samples of a step", between(1, 1 << 30));
    o("--rounds", rounds, "Repetitions of each measurement, of which the median counts", between(1, 1000));
    o.json(json);
  }
};

constexpr int64_t kAtOnce = 1 << 20, kTokensAtOnce = 1 << 17;

std::vector<std::string> paths_of(const Corpus& corpus) {
  std::vector<std::string> paths;
  for (const ShardReader& shard : corpus.shards()) paths.push_back(shard.path());
  return paths;
}

// Drops the files from the page cache.
void forget(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    File file = File::open_to_write(path);
    file.sync();  // pages that are not on disk yet would stay
    posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

double read_plainly(const std::vector<std::string>& paths) {
  std::vector<char> bytes(kAtOnce);
  const auto begin = Clock::now();
  for (const std::string& path : paths) {
    const File file = File::open_to_read(path);
    for (int64_t at = 0, size = file.size(); at < size; at += kAtOnce) file.read_at(bytes.data(), std::min(kAtOnce, size - at), at);
  }
  return seconds_since(begin);
}

// Calls do_part(0) to do_part(parts - 1) on this many threads, each of which takes the next part.
void divide(int64_t parts, int threads, const std::function<void(int64_t)>& do_part) {
  std::atomic<int64_t> next = 0;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> workers;
    for (std::exception_ptr& failure : failures)
      workers.emplace_back([&] {
        try {
          for (int64_t part; (part = next++) < parts;) do_part(part);
        } catch (...) {
          failure = std::current_exception();
          next = parts;
        }
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// Reads the same pieces of the files as an epoch's samples, in any order, and does nothing with them.
double read_plainly_shuffled(const std::vector<std::string>& paths, int64_t piece, int threads) {
  std::vector<File> files;
  std::vector<int64_t> ends;  // of each file's pieces
  for (const std::string& path : paths) {
    files.push_back(File::open_to_read(path));
    ends.push_back(files.back().size() / piece + (ends.empty() ? 0 : ends.back()));
  }
  constexpr int64_t at_once = 64;
  const auto begin = Clock::now();
  divide((ends.back() + at_once - 1) / at_once, threads, [&](int64_t part) {
    std::vector<char> bytes(static_cast<size_t>(piece));
    for (int64_t i = part * at_once; i < std::min(ends.back(), (part + 1) * at_once); ++i) {
      const int64_t number = permuted(1, 0, i, ends.back());
      const auto file = static_cast<size_t>(std::ranges::upper_bound(ends, number) - ends.begin());
      files[file].read_at(bytes.data(), piece, (number - (file > 0 ? ends[file - 1] : 0)) * piece);
    }
  });
  return seconds_since(begin);
}

// Reads tokens, checked against digests and widened.
double read_shards(const std::vector<std::string>& paths, int threads) {
  const auto begin = Clock::now();
  for (const std::string& path : paths) {
    const ShardReader shard(path);
    divide((shard.tokens() + kTokensAtOnce - 1) / kTokensAtOnce, threads, [&](int64_t part) {
      thread_local std::vector<int32_t> tokens(kTokensAtOnce);
      const int64_t at = part * kTokensAtOnce, count = std::min(kTokensAtOnce, shard.tokens() - at);
      shard.read(at, std::span(tokens).first(static_cast<size_t>(count)));
    });
  }
  return seconds_since(begin);
}

// Reads an epoch of shuffled samples, as the loader of the only replica does.
double read_batches(const std::vector<std::string>& paths, const BenchDataOptions& options) {
  const Corpus corpus(paths, options.context, false);
  const int64_t batch = std::min(options.batch, corpus.samples());
  const auto begin = Clock::now();
  Loader loader(corpus, {.context = options.context, .batch = batch, .seed = 1, .document_mask = true, .restart_positions = false});
  for (int64_t step = 0; step < corpus.samples() / batch; ++step) loader.next();
  return seconds_since(begin);
}

ExitCode run_bench_data(const BenchDataOptions& options) {
  JsonOutput json(options.json);
  const Corpus first(options.inputs, options.context, false);
  const std::vector<std::string> paths = paths_of(first);
  double bytes = 0, tokens = 0;
  for (const std::string& path : paths) {
    const ShardReader shard(path);
    bytes += static_cast<double>(shard.file_bytes());
    tokens += static_cast<double>(shard.tokens());
  }
  say(row("%zu shards, %s, %.0f million tokens; samples of %lld tokens, %lld a batch", paths.size(), human_bytes(bytes).c_str(),
          tokens / 1e6, static_cast<long long>(options.context), static_cast<long long>(options.batch)));
  const auto time = [&](bool cold, const std::function<double()>& read) {
    std::vector<double> seconds;
    read();
    for (int64_t i = 0; i < options.rounds; ++i) {
      if (cold) forget(paths);
      seconds.push_back(read());
    }
    return upper_median(seconds);
  };
  const int readers = LoaderOptions{}.readers;
  const int64_t piece = options.context * (first.vocab() <= 65536 ? 2 : 4);
  Json found = Json::array();
  for (const bool cold : {false, true}) {
    const double plain = time(cold, [&] { return read_plainly(paths); });
    const double checked = time(cold, [&] { return read_shards(paths, 1); });
    const double by_readers = time(cold, [&] { return read_shards(paths, readers); });
    const double pieces = time(cold, [&] { return read_plainly_shuffled(paths, piece, readers); });
    const double shuffled = time(cold, [&] { return read_batches(paths, options); });
    const auto line = [&](const char* what, double seconds) {
      say(row("%-12s%-34s%8.2f GB/s%8.0f million tokens/s%7.0f %%", cold ? "disk" : "page cache", what, bytes / seconds / 1e9,
              tokens / seconds / 1e6, 100 * plain / seconds));
      found.push_back({{"from", cold ? "disk" : "page cache"}, {"name", what}, {"seconds", seconds}});
    };
    line("read", plain);
    line("tokens, checked", checked);
    line(row("tokens, checked, by %d threads", readers).c_str(), by_readers);
    line(row("read, shuffled, by %d threads", readers).c_str(), pieces);
    line("an epoch of shuffled batches", shuffled);
  }
  json.write({{"shards", paths.size()}, {"bytes", bytes}, {"tokens", tokens}, {"readings", found}});
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> bench_data_command() { return make_command<BenchDataOptions>(run_bench_data); }

}  // namespace trireme
