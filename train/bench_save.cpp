// trireme bench save: what a save costs the steps of a config, beside what this machine's memory and disk can do, in the same run.
//
// A round takes steps beside which a save is written and as many without one, in turns, so that a machine that slows down does so
// for both; a save alone; and the same bytes by memcpy and by plain O_DIRECT writes. The interval of what a save costs is
// Student's, of the rounds' differences (Student, "The probable error of a mean", 1908).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/memory.h"
#include "train/bench_table.h"
#include "train/commands.h"
#include "train/human.h"
#include "train/kernel_choices.h"
#include "train/log.h"
#include "train/plan.h"
#include "train/saves.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTransfer = 4 << 20;  // bytes of one O_DIRECT write

template <class Call>
double seconds_of(Call call) {
  const auto begin = Clock::now();
  call();
  return seconds_since(begin);
}

// A mean, and how far from it the true one may be: 19 times in 20 it is no further.
struct Estimate {
  double mean, margin;
};

Estimate estimate(const std::vector<double>& values) {
  constexpr double kQuantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
                                   2.179,  2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};  // 0.975, from 1 degree on
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const size_t degrees = values.size() - 1;
  const double quantile = degrees <= std::size(kQuantiles) ? kQuantiles[degrees - 1] : 1.96 + 2.5 / static_cast<double>(degrees);
  return {.mean = mean, .margin = quantile * std::sqrt(squares / (n - 1) / n)};
}

// A directory that goes with its contents, beside those of runs: on their disk.
class Scratch {
 public:
  explicit Scratch(const RunConfig& config)
      : path_(config.train.runs + "/." + config.train.name + "-bench-save-" + std::to_string(getpid())) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) throw ConfigError(text("cannot make ", path_, ": ", error.message(), ": set train.runs to where runs are written"));
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Seconds to write `bytes` bytes (a multiple of kTransfer) of page-aligned memory to a file and have them on disk; nullopt where
// the file system wants its cache.
std::optional<double> write_directly(const std::string& path, const std::byte* memory, int64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0666);
  bool done = fd >= 0;
  const double seconds = seconds_of([&] {
    for (int64_t at = 0; done && at < bytes; at += kTransfer) done = pwrite(fd, memory + at, kTransfer, at) == kTransfer;
    done = done && fsync(fd) == 0;
  });
  if (fd >= 0) close(fd);
  unlink(path.c_str());
  return done ? std::optional(seconds) : std::nullopt;
}

struct Round {
  double plain, beside;  // seconds of the same number of steps, without a save and with one
  SaveTimes saved;       // beside steps
  SaveTimes alone;
  double memcpy;                 // of a rank's state, by one thread
  std::optional<double> direct;  // of as many bytes
};

// All that a round works on.
class Bench {
 public:
  Bench(const RunConfig& config, Run& run, Device& device, const std::string& directory)
      : config_(config),
        run_(run),
        random_(config),
        directory_(directory),
        checkpoints_(with_disk_alone(config.checkpoint), directory),
        saves_(config, run, history_, checkpoints_, log_, journal_),
        shards_(state_shards(run, Shards::all)),
        other_(device, (bytes_of(shards_) + kTransfer - 1) / kTransfer * kTransfer, "bench save") {}

  // Finds how many steps a round takes: those of a save, and two more.
  void warm_up() {
    step();
    run_.device.freeze();
    step();
    const double seconds = seconds_of([&] { step(); });
    copy_state();  // memory is there from its first use on
    saves_.begin(done_);
    do step_beside_save();
    while (checkpoints_.saving());
    steps_ = 2 + static_cast<int64_t>(saves_.last().result.seconds / seconds);
  }

  Round round(int number) {
    Round r{};
    const auto plain = [&] { r.plain = seconds_of([&] { plain_steps(); }); };
    if (number % 2 == 0) plain();
    r.beside = seconds_of([&] {
      saves_.begin(done_);
      for (int64_t i = 0; i < steps_; ++i) step_beside_save();
      saves_.end();
    });
    r.saved = saves_.last();
    if (number % 2 == 1) plain();
    if (number % 2 == 0) step();  // a state that is saved twice is refused
    const auto direct = [&] { r.direct = write_directly(directory_ + "/direct", other_.data(), other_.bytes()); };
    if (number % 4 < 2) direct();
    saves_.save_at_last(done_);
    r.alone = saves_.last();
    if (number % 4 >= 2) direct();
    r.memcpy = seconds_of([&] { copy_state(); });
    return r;
  }

  int64_t steps() const { return steps_; }
  int64_t bytes() const { return other_.bytes(); }

 private:
  static CheckpointConfig with_disk_alone(CheckpointConfig section) {
    section.memory_every = 0;
    section.command = "";
    return section;
  }

  void step() {
    const StepResult result = train_step(run_, random_.batch, done_++);
    history_.saw(done_, result);
  }
  void plain_steps() {
    for (int64_t i = 0; i < steps_; ++i) step();
  }
  void step_beside_save() {
    step();
    if (!saves_.busy()) saves_.advance();
  }
  void copy_state() {
    std::byte* to = other_.data();
    for (const NamedShard& shard : shards_) {
      if (shard.local.place() == Place::cpu) std::memcpy(to, shard.local.data(), static_cast<size_t>(shard.local.bytes()));
      to += shard.local.bytes();
    }
  }

  const RunConfig& config_;
  Run& run_;
  RandomBatch random_;
  std::string directory_;
  History history_{0};
  std::optional<RunLog> log_;
  Journal journal_{0};
  Checkpoints checkpoints_;
  Saves saves_;
  std::vector<NamedShard> shards_;
  Buffer other_;
  int64_t done_ = 0, steps_ = 1;
};

template <class Value>
std::vector<double> column(const std::vector<Round>& rounds, Value value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(value(round));
  return values;
}

void tell(const RunConfig& config, const std::vector<Round>& rounds, int64_t steps) {
  const auto middle = [&](auto value) { return median(column(rounds, value)); };
  const auto bytes = static_cast<double>(rounds.front().alone.result.bytes);
  const double copied = middle([](const Round& r) { return r.memcpy; });
  const double snapshot = middle([](const Round& r) { return std::min(r.saved.snapshot, r.alone.snapshot); });
  say(row("state           %s", human_bytes(bytes).c_str()));
  say(row("memcpy          %10.1f ms by one thread: %.1f GB/s", copied * 1e3, bytes / copied / 1e9));
  say(row("snapshot        %10.1f ms: %.2f of that memcpy", snapshot * 1e3, snapshot / copied));
  if (rounds.front().direct) {
    const double direct = middle([](const Round& r) { return *r.direct; });
    say(row("O_DIRECT        %10.2f GB/s: plain writes of %ld MiB", bytes / direct / 1e9, static_cast<long>(kTransfer >> 20)));
    const double share = middle([](const Round& r) { return *r.direct / r.alone.result.write_seconds; });
    say(row("a save alone    %10.2f GB/s: %.0f %% of that",
            bytes / middle([](const Round& r) { return r.alone.result.write_seconds; }) / 1e9, 100 * share));
  } else {
    say(row("a save alone    %10.2f GB/s; this file system does not write past its cache",
            bytes / middle([](const Round& r) { return r.alone.result.write_seconds; }) / 1e9));
  }
  say(row("                %10.2f s until it is committed", middle([](const Round& r) { return r.alone.result.seconds; })));
  say(row("beside steps    %10.2f s until it is committed", middle([](const Round& r) { return r.saved.result.seconds; })));
  say(row("steps wait      %10.1f ms", 1e3 * middle([](const Round& r) { return r.saved.stall; })));
  const double step = middle([&](const Round& r) { return r.plain / static_cast<double>(steps); });
  say(row("step            %10.1f ms", step * 1e3));
  const Estimate cost = estimate(column(rounds, [](const Round& r) { return r.beside - r.plain; }));
  say(row("a save costs    %10.1f ms, give or take %.1f (95 %%, %zu rounds of %ld steps with and without)", cost.mean * 1e3,
          cost.margin * 1e3, rounds.size(), static_cast<long>(steps)));
  const int64_t every = config.checkpoint.every > 0 ? config.checkpoint.every : 100;
  const double share = 100 / step / static_cast<double>(every);
  say(row("every %ld steps  %9.2f %% of the time, %.2f to %.2f", static_cast<long>(every), share * cost.mean,
          share * (cost.mean - cost.margin), share * (cost.mean + cost.margin)));
}

}  // namespace

ExitCode run_bench_save(const BenchOptions& options) {
  const RunConfig config = read_config(options.config, options.set, Purpose::plan);
  Device device = open_device(config.kernels, 1);
  const Mesh mesh(0, 1, config.parallel);
  const Plan plan = make_plan(config, mesh);
  const ChosenKernels kernels = choose_kernels(config, plan, mesh, device, "");
  Run run(config, mesh, device, plan.sizes);
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  const Scratch scratch(config);
  Bench bench(config, run, device, scratch.path());
  bench.warm_up();
  std::vector<Round> rounds;
  for (int i = 0; i < options.rounds; ++i) rounds.push_back(bench.round(i));
  tell(config, rounds, bench.steps());
  return ExitCode::done;
}

}  // namespace trireme
