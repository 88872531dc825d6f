// trireme bench tokenizer: how fast text becomes tokens and tokens text, by one thread and by all, beside a copy of the bytes.
#include <algorithm>
#include <cstring>
#include <functional>

#include "data/documents.h"
#include "data/tokenizer.h"
#include "kernels/device.h"
#include "train/bench_table.h"
#include "train/commands.h"
#include "train/human.h"
#include "train/log.h"

namespace trireme {
namespace {

std::vector<Passage> read_all(const std::vector<std::string>& inputs, const std::string& field) {
  Documents documents(list_files(inputs), {.field = field});
  std::vector<Passage> all;
  for (auto some = documents.next(64 << 20); !some.empty(); some = documents.next(64 << 20))
    std::ranges::move(some, std::back_inserter(all));
  if (all.empty()) throw DataError(inputs.front() + ": there is no text");
  return all;
}

// The median of some rounds, after one that is not counted.
double seconds_of(int64_t rounds, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int64_t i = 0; i <= rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    if (i > 0) seconds.push_back(seconds_since(begin));
  }
  return median(seconds);
}

}  // namespace

ExitCode run_bench_tokenizer(const BenchOptions& options) {
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const std::vector<Passage> passages = read_all(options.inputs, options.field);
  double bytes = 0, tokens = 0;
  std::vector<std::vector<int32_t>> encoded(passages.size());
  const auto encode = [&](int threads) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (size_t i = 0; i < passages.size(); ++i) {
      encoded[i].clear();
      tokenizer->encode(passages[i].text, encoded[i]);
    }
  };
  std::string copy;
  for (const Passage& passage : passages) bytes += static_cast<double>(passage.text.size());
  const double copying = seconds_of(options.rounds, [&] {
    for (const Passage& passage : passages) copy = passage.text;
  });
  const double alone = seconds_of(options.rounds, [&] { encode(1); });
  for (const auto& some : encoded) tokens += static_cast<double>(some.size());
  const int threads = threads_here();
  const double together = seconds_of(options.rounds, [&] { encode(threads); });
  const double decoding = seconds_of(options.rounds, [&] {
    for (const auto& some : encoded) copy = tokenizer->decode(some);
  });
  say(row("text            %s in %zu passages, %.2f bytes a token", human_bytes(bytes).c_str(), passages.size(), bytes / tokens));
  say(row("copy            %10.1f MB/s", bytes / copying / 1e6));
  say(row("encode          %10.1f MB/s, %.1f million tokens/s: %.0f times a copy", bytes / alone / 1e6, tokens / alone / 1e6,
          alone / copying));
  say(row("by %2d threads   %10.1f MB/s: %.2f times as fast", threads, bytes / together / 1e6, alone / together));
  say(row("decode          %10.1f MB/s", bytes / decoding / 1e6));
  return ExitCode::done;
}

}  // namespace trireme
