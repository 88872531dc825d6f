// trireme bench tokenizer: times encoding and decoding, on one thread and on all, against a copy of the bytes.
#include <algorithm>
#include <cstring>
#include <functional>

#include "base/clock.h"
#include "base/median.h"
#include "base/number_format.h"
#include "checkpoint/digest.h"
#include "data/documents/documents.h"
#include "data/documents/list_files.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/device.h"
#include "train/cli/bench_table.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct BenchTokenizerOptions {
  static constexpr auto name = "bench tokenizer";
  static constexpr auto about = "Time encoding and decoding of text, on one thread and on all";
  std::string tokenizer, field = "text", json;
  std::vector<std::string> inputs;
  int64_t rounds = 8;
  void visit(Options& o) {
    o("tokenizer", tokenizer, kTokenizers).required();
    o("inputs", inputs, "Text: files, directories, patterns").required();
    o("--field", field, "Field of a JSON line that holds the text");
    o("--rounds", rounds, "Repetitions of each measurement, of which the median counts", between(1, 1000));
    o.json(json);
  }
};

std::vector<Passage> read_all(const std::vector<std::string>& inputs, const std::string& field, const Tokenizer& tokenizer) {
  Documents documents(list_files(inputs), {.field = field, .tokenizer = &tokenizer});
  std::vector<Passage> all;
  for (auto some = documents.next(64 << 20); !some.empty(); some = documents.next(64 << 20))
    std::ranges::move(some, std::back_inserter(all));
  if (all.empty()) throw DataError(inputs.front() + ": there is no text");
  return all;
}

struct Seconds {
  double first, usual;  // usual: the median of all but the first
};
Seconds timed(int64_t rounds, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int64_t i = 0; i <= rounds; ++i) {
    const auto begin = Clock::now();
    work();
    seconds.push_back(seconds_since(begin));
  }
  return {.first = seconds.front(), .usual = upper_median({seconds.begin() + 1, seconds.end()})};
}

ExitCode run_bench_tokenizer(const BenchTokenizerOptions& options) {
  JsonOutput json(options.json);
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const std::vector<Passage> passages = read_all(options.inputs, options.field, *tokenizer);
  const int threads = threads_here();
  double bytes = 0, tokens = 0;
  std::vector<std::vector<int32_t>> encoded(passages.size());
  const auto encode = [&](int by) {
    use_threads_here(by);
    in_parallel(std::ssize(passages), by > 1, [&](int64_t i) {
      auto& ids = encoded[static_cast<size_t>(i)];
      ids.clear();
      const Passage& passage = passages[static_cast<size_t>(i)];
      if (passage.starts)
        tokenizer->encode(passage.text, ids);
      else
        tokenizer->encode_rest(passage.text, ids);
    });
  };
  std::string copy;
  for (const Passage& passage : passages) bytes += static_cast<double>(passage.text.size());
  const Seconds copying = timed(options.rounds, [&] {
    for (const Passage& passage : passages) copy = passage.text;
  });
  const Seconds alone = timed(options.rounds, [&] { encode(1); });
  for (const auto& some : encoded) tokens += static_cast<double>(some.size());
  const Seconds together = timed(options.rounds, [&] { encode(threads); });
  const Seconds decoding = timed(options.rounds, [&] {
    for (const auto& some : encoded) copy = tokenizer->decode(some);
  });
  say(row("text            %s in %zu passages, %.2f bytes a token", human_bytes(bytes).c_str(), passages.size(), bytes / tokens));
  const auto rate = [&](double seconds) { return bytes / seconds / 1e6; };
  say(row("copy            %10.1f MB/s", rate(copying.usual)));
  say(row("encode          %10.1f MB/s, the first time %.1f; %.1f million tokens/s: %.0f times a copy", rate(alone.usual),
          rate(alone.first), tokens / alone.usual / 1e6, alone.usual / copying.usual));
  say(row("by %2d threads   %10.1f MB/s: %.2f times as fast", threads, rate(together.usual), alone.usual / together.usual));
  say(row("decode          %10.1f MB/s", rate(decoding.usual)));
  json.write({{"text_bytes", bytes},
              {"passages", passages.size()},
              {"tokens", tokens},
              {"threads", threads},
              {"copy_seconds", copying.usual},
              {"encode_seconds", alone.usual},
              {"encode_first_seconds", alone.first},
              {"encode_all_threads_seconds", together.usual},
              {"decode_seconds", decoding.usual}});
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> bench_tokenizer_command() { return make_command<BenchTokenizerOptions>(run_bench_tokenizer); }

}  // namespace trireme
