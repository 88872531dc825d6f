// trireme bench save: measures the overhead of saves for the steps of a config, against memory and disk, in the same run.
//
// A round takes steps beside which a save is written and as many without one, in turns, so that a machine that slows down does so
// for both; a save alone; and as many bytes by memcpy and by plain O_DIRECT writes, one after the other.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/number_format.h"
#include "kernels/memory.h"
#include "train/cli/bench_table.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/cli/save_costs.h"
#include "train/health/signals.h"
#include "train/run/device_choice.h"
#include "train/run/kernel_choices.h"
#include "train/run/save_scheduler.h"
#include "train/step/plan.h"
#include "train/telemetry/run_log.h"

namespace trireme {
namespace {

struct BenchSaveOptions {
  static constexpr auto name = "bench save";
  static constexpr auto about = "Measure checkpoint overhead against raw memory and disk bandwidth";
  std::string config, json;
  std::vector<std::string> set;
  int64_t rounds = 8;
  void visit(Options& o) {
    o("config", config, "YAML file").required();
    o("--rounds", rounds, "Repetitions: steps with a save, and as many without", between(2, 1000));
    o.json(json);
    o.set(set);
  }
};

template <class Call>
double seconds_of(Call call) {
  const auto begin = Clock::now();
  call();
  return seconds_since(begin);
}

// A temporary directory beside those of runs, on their disk.
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

// Seconds to write `bytes` bytes (a multiple of kTransfer) of page-aligned memory to a file and have them on disk; nullopt if the
// file system refuses to bypass its cache.
std::optional<double> write_directly(const std::string& path, const std::byte* memory, int64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0666);
  bool done = fd >= 0;
  errno = done ? 0 : errno;
  const double seconds = seconds_of([&] {
    for (int64_t at = 0; done && at < bytes; at += kTransfer) done = pwrite(fd, memory + at, kTransfer, at) == kTransfer;
    done = done && fsync(fd) == 0;
  });
  const int reason = errno;
  if (fd >= 0) close(fd);
  unlink(path.c_str());
  if (!done && reason != EINVAL) throw CheckpointError(text("cannot write ", path, ": ", strerror(reason == 0 ? EIO : reason)));
  return done ? std::optional(seconds) : std::nullopt;
}

struct Round {
  double plain, beside;  // seconds of the same number of steps, without a save and with one
  SaveTimes saved;       // beside steps
  SaveTimes alone;
  double memcpy;                 // of a rank's state, by one thread
  std::optional<double> direct;  // of as many bytes
};

// State and saves of the rounds.
class Bench {
 public:
  Bench(const RunConfig& config, TrainState& run, const std::string& directory)
      : run_(run),
        random_(config),
        directory_(directory),
        checkpoints_(with_disk_alone(config.checkpoint), directory),
        saves_(run, history_, checkpoints_, log_, journal_),
        slices_(state_slices(run, Ownership::held)),
        bytes_((bytes_of(slices_) + kTransfer - 1) / kTransfer * kTransfer),
        other_(map_memory(bytes_, "bench save")) {
    std::memset(other_, 1, static_cast<size_t>(bytes_));
  }
  ~Bench() { unmap_memory(other_, bytes_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Sets the number of steps of a round: those that a save takes, and two more.
  void warm_up() {
    step();
    run_.device.freeze();
    step();
    const double seconds = seconds_of([&] { step(); });
    copy_state();  // the first use maps its pages
    saves_.begin(done_);
    do step_beside_save();
    while (checkpoints_.saving());
    steps_ = 2 + static_cast<int64_t>(saved().result.seconds / seconds);
  }

  Round round(int number) {
    Round r{};
    step();  // a state that was saved already would not be written again
    const auto plain = [&] { r.plain = seconds_of([&] { plain_steps(); }); };
    if (number % 2 == 0) plain();
    r.beside = seconds_of([&] {
      saves_.begin(done_);
      for (int64_t i = 0; i < steps_; ++i) step_beside_save();
      saves_.end();
    });
    r.saved = saved();
    if (number % 2 == 1) plain();
    step();
    const auto direct = [&] { r.direct = write_directly(directory_ + "/direct", other_, bytes_); };
    if (number % 4 < 2) direct();
    saves_.save_at_last(done_);
    r.alone = saved();
    if (number % 4 >= 2) direct();
    r.memcpy = seconds_of([&] { copy_state(); });
    return r;
  }

  int64_t steps() const { return steps_; }
  bool copies() const { return run_.device.place() == Place::cpu; }  // from memory that memcpy reaches
  int64_t bytes() const { return bytes_; }                           // of a round's direct writes

 private:
  static CheckpointConfig with_disk_alone(CheckpointConfig section) {
    section.memory_every = 0;
    section.command = "";
    return section;
  }

  void step() {
    begin_step(run_, random_.batch, done_, history_.limits(done_ + 1));
    const StepResult result = end_step(run_, done_++);
    history_.saw(done_, result);
  }
  void plain_steps() {
    for (int64_t i = 0; i < steps_; ++i) step();
  }
  // The save that has just ended. CheckpointError if it did not succeed, which SaveScheduler reports to a log alone.
  const SaveTimes& saved() {
    const int64_t step = saves_.last().result.step;
    if (saves_.last().result.bytes == 0 || step == std::exchange(measured_, step))
      throw CheckpointError("a save to " + directory_ + " failed: is there room for some states of the run?");
    return saves_.last();
  }
  void step_beside_save() {
    step();
    if (!saves_.busy()) saves_.advance();
  }
  void copy_state() {
    std::byte* to = other_;
    for (const TensorSlice& slice : slices_) {
      if (slice.local.place() == Place::cpu) std::memcpy(to, slice.local.data(), static_cast<size_t>(slice.local.bytes()));
      to += slice.local.bytes();
    }
  }

  TrainState& run_;
  RandomBatch random_;
  std::string directory_;
  StepStatistics history_{0};
  std::optional<RunLog> log_;
  Journal journal_{0};
  Checkpoints checkpoints_;
  SaveScheduler saves_;
  std::vector<TensorSlice> slices_;
  int64_t bytes_;
  std::byte* other_;
  int64_t done_ = 0, steps_ = 1, measured_ = -1;
};

template <class Value>
std::vector<double> column(const std::vector<Round>& rounds, Value value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(value(round));
  return values;
}

SaveCosts summarise(const RunConfig& config, const std::vector<Round>& rounds, const Bench& bench) {
  const auto middle = [&](auto value) { return upper_median(column(rounds, value)); };
  const auto bytes = static_cast<double>(rounds.front().alone.result.bytes), direct_bytes = static_cast<double>(bench.bytes());
  SaveCosts c{.bytes = bytes,
              .memcpy = middle([](const Round& r) { return r.memcpy; }),
              .snapshot = middle([](const Round& r) { return r.saved.snapshot; }),
              .direct = {},
              .alone = bytes / middle([](const Round& r) { return r.alone.result.write_seconds; }),
              .share = 0,
              .committed = middle([](const Round& r) { return r.alone.result.seconds; }),
              .committed_beside_steps = middle([](const Round& r) { return r.saved.result.seconds; }),
              .wait = middle([](const Round& r) { return r.saved.stall; }),
              .step = middle([&](const Round& r) { return r.plain / static_cast<double>(bench.steps()); }),
              .cost = estimate(column(rounds, [](const Round& r) { return r.beside - r.plain; })),
              .rounds = std::ssize(rounds),
              .steps = bench.steps(),
              .every = config.checkpoint.every > 0 ? config.checkpoint.every : 100};
  if (!std::ranges::all_of(rounds, [](const Round& r) { return r.direct.has_value(); })) return c;
  c.direct = direct_bytes / middle([](const Round& r) { return *r.direct; });
  c.share = middle([&](const Round& r) { return bytes / direct_bytes * *r.direct / r.alone.result.write_seconds; });
  return c;
}

ExitCode run_bench_save(const BenchSaveOptions& options) {
  JsonOutput json(options.json);
  watch_signals();  // Ctrl-C, too, removes the directory
  RunConfig config = read_config(options.config, options.set, Purpose::plan);
  choose_device(config);
  Device device = open_device(config.kernels_of_run(), 1);
  const Mesh mesh(0, 1, config.parallel);
  const Plan plan = make_plan(config, mesh);
  const ChosenKernels kernels = choose_kernels(config, plan, mesh, device, {});
  TrainState run(config, mesh, device, plan.sizes);
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  const Scratch scratch(config);
  Bench bench(config, run, scratch.path());
  bench.warm_up();
  std::vector<Round> rounds;
  for (int i = 0; i < options.rounds && stop_signal() == 0; ++i) rounds.push_back(bench.round(i));
  if (rounds.size() < 2) return ExitCode::stopped;
  const SaveCosts costs = summarise(config, rounds, bench);
  say_costs(costs, bench.copies());
  json.write(json_of(costs, bench.copies()));
  return stop_signal() == 0 ? ExitCode::done : ExitCode::stopped;
}

}  // namespace

std::unique_ptr<Command> bench_save_command() { return make_command<BenchSaveOptions>(run_bench_save); }

}  // namespace trireme
