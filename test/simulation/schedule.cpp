#include "test/simulation/schedule.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <utility>

#include "checkpoint/reader.h"
#include "test/simulation/job.h"
#include "test/simulation/planted.h"
#include "test/simulation/state.h"

namespace trireme::simulation {

namespace {

constexpr int64_t kMostCalls = 40'000;  // of one life
constexpr int kMostLives = 3;           // with faults

Job draw_job(Random& random) {
  Job job;
  job.ranks = std::array{1, 1, 2, 3}[static_cast<size_t>(random.below(4))];
  job.nodes = job.ranks > 1 && random.chance(0.5) ? 2 : 1;
  job.steps = random.between(2, 6);
  job.step_time = random.chance(0.7) ? 5 * kMillisecond : 200 * kMillisecond;
  job.checkpoint.every = random.between(1, 2);
  job.checkpoint.keep = random.between(2, 3);
  job.checkpoint.keep_every = random.chance(0.2) ? 2 : 0;
  job.checkpoint.async = random.chance(0.8);
  job.checkpoint.memory_every = random.chance(0.4) ? random.between(1, 2) : 0;
  if (random.chance(0.25)) job.checkpoint.command = "copy";
  job.command_fails = random.chance(0.2);
  if (random.chance(0.03)) job.doomed_at = 1;
  return job;
}

Weather draw_weather(Random& random) {
  Weather weather;
  if (random.chance(0.3)) weather.error = random.chance(0.5) ? 0.002 : 0.02;
  if (random.chance(0.1)) weather.read_error = 0.003;
  if (random.chance(0.3)) weather.interrupt = 0.01, weather.shorten = 0.02;
  if (random.chance(0.4)) weather.slow = 0.01, weather.slowest = random.chance(0.7) ? 20 * kMillisecond : kSecond;
  return weather;
}

// One schedule under way.
class Schedule {
 public:
  explicit Schedule(const Options& options)
      : options_(options), random_(options.seed), job_(draw_job(random_)), world_(random_.next()), truth_(world_, kRun) {
    const Unowned unowned;
    world_.traced = options.traced;
    cluster() = &cluster_;
    for (const std::string name : {"cluster", "cluster/other", "cluster/other/checkpoints"}) make_directory(name);
    world_.shared.make_all_durable();
    plant(world_, options.planted);
    supervised_ = random_.chance(0.5);
  }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  ~Schedule() { cluster() = nullptr; }

  Result run() {
    const int lives = static_cast<int>(std::min(random_.between(1, kMostLives), random_.between(1, kMostLives)));
    for (int life = 0; life < lives && world_.failure.empty(); ++life) live();
    if (world_.failure.empty()) recover();
    return {.failure = world_.failure,
            .trace = std::move(world_.trace),
            .calls = world_.calls,
            .commits = truth_.commits(),
            .restores = truth_.restores(),
            .faults = faults_};
  }

 private:
  void make_directory(const std::string& path) {
    const size_t slash = path.rfind('/');
    const int parent = slash == std::string::npos ? 0 : world_.shared.find(path.substr(0, slash));
    world_.shared.change({{parent, path.substr(slash + 1), world_.shared.make(true)}});
  }

  Process& start() {
    if (!supervised_) return start_job(cluster_, nullptr);
    return world_.spawn({.name = "supervise"}, [this] { return run_supervisor(cluster_); });
  }

  // A start of the run, with faults at random calls.
  void live() {
    world_.weather = draw_weather(random_);
    if (world_.weather.read_error > 0) truth_.read_failed();
    const int64_t horizon = 700 * job_.ranks * (1 + job_.steps / job_.checkpoint.every);
    for (int64_t faults = random_.between(0, 3); faults > 0; --faults)
      world_.at_call(world_.calls + random_.below(random_.chance(0.5) ? horizon : horizon / 4), [this] { strike(); });
    (void)start();
    (void)world_.run(world_.calls + kMostCalls);
    end_all();
  }

  void end_all() {
    world_.cancel_events();
    for (const auto& process : world_.processes()) world_.die(*process, SIGKILL);
  }

  std::vector<Process*> alive() {
    std::vector<Process*> found;
    for (const auto& process : world_.processes())
      if (!process->dead) found.push_back(process.get());
    return found;
  }

  void strike();
  void lose_lock();
  void damage();

  // Without further faults, a start ends with the last step saved, and every checkpoint is whole.
  void recover() {
    world_.weather = {};
    world_.note("recovery");
    const_cast<Job&>(cluster_.job).doomed_at = -1;
    Process& job = start_job(cluster_, nullptr);
    const bool quiet = world_.run(world_.calls + kMostCalls);
    if (!world_.failure.empty()) return;
    if (!quiet || !job.dead || job.status != 0)
      return world_.fail("the run does not end after the faults: " + std::to_string(code_of_status(job.status)));
    audit();
  }

  void audit() {
    world_.spawn({.name = "audit"}, [this] {
      for (const CheckpointInfo& info : list_checkpoints(kRun)) {
        if (truth_.is_damaged(info.step)) continue;
        if (!info.problem.empty()) world_.fail("promise 1: " + info.directory + ": " + info.problem);
        State state(0, 1);
        CheckpointReader(info.directory).read(state.slices());
        if (const std::string differs = state.differs_from(info.step); !differs.empty())
          world_.fail("promise 5: " + info.directory + ": " + differs);
      }
      return 0;
    });
    (void)world_.run(world_.calls + kMostCalls);
  }

  Options options_;
  Random random_;
  Job job_;
  World world_;
  Truth truth_;
  Cluster cluster_{.world = world_, .truth = truth_, .job = job_};
  bool supervised_ = false;
  int64_t faults_ = 0;
};

// One fault, now.
void Schedule::strike() {
  const Unowned unowned;
  ++faults_;
  const std::vector<Process*> processes = alive();
  if (processes.empty()) return;
  Process& victim = *processes[static_cast<size_t>(random_.below(std::ssize(processes)))];
  switch (random_.below(12)) {
    case 0:
    case 1:
    case 2:
      return world_.send(victim, SIGKILL);
    case 3:
    case 4:
      return world_.send(victim, std::array{SIGTERM, SIGINT, SIGUSR1, SIGUSR2}[static_cast<size_t>(random_.below(4))]);
    case 5:
    case 6:
      world_.lose_power(std::array{0.0, 0.5, 1.0}[static_cast<size_t>(random_.below(3))]);
      return truth_.power_lost();
    case 7:
      truth_.node_lost();
      return world_.lose_node(static_cast<int>(random_.below(job_.nodes)));
    case 8:
      victim.frozen_until = world_.now + random_.below(2 * kSecond);
      return world_.note("freeze ", victim.name);
    case 9:
      return damage();
    default:
      return lose_lock();
  }
}

// The lock's server forgets its locks, or somebody removes the file; then a second job starts. Or
// only that, by mistake.
void Schedule::lose_lock() {
  const int run = world_.shared.find("cluster/demo"), lock = world_.shared.find("cluster/demo/lock");
  if (lock >= 0 && random_.chance(0.5)) {
    truth_.two_jobs();
    world_.note("the lock is lost");
    world_.shared.at(lock).lock = nullptr;
    if (random_.chance(0.5)) world_.shared.change({{run, "lock", -1}});
  }
  (void)start_job(cluster_, nullptr);
}

// A bit of a file of a committed checkpoint flips.
void Schedule::damage() {
  const int there = world_.shared.find("cluster/demo/checkpoints");
  if (there < 0 || truth_.any_damaged()) return;
  std::vector<std::pair<int64_t, int>> files;
  for (const auto& [name, directory] : world_.shared.at(there).entries)
    if (name.size() == 13 && world_.shared.at(directory).directory)
      for (const auto& [file, inode] : world_.shared.at(directory).entries)
        if (!world_.shared.at(inode).bytes.empty()) files.emplace_back(std::stoll(name.substr(5)), inode);
  if (files.empty() || files.front().first == files.back().first) return;  // another must stay whole
  const auto [step, inode] = files[static_cast<size_t>(random_.below(std::ssize(files)))];
  Inode& file = world_.shared.at(inode);
  const auto at = static_cast<size_t>(random_.below(std::ssize(file.bytes)));
  file.bytes[at] = static_cast<char>(file.bytes[at] ^ 4);
  file.durable = file.bytes, ++file.version;
  world_.note("a bit flips in step ", std::to_string(step));
  truth_.damaged(step);
}

}  // namespace

Result run_schedule(const Options& options) { return Schedule(options).run(); }

std::string explain(const Options& options) {
  Options traced = options;
  traced.traced = true;
  const Result result = run_schedule(traced);
  std::string text;
  for (const std::string& line : result.trace) text += line + "\n";
  text += "seed " + std::to_string(options.seed) + ": " + result.failure + "\nrepeat: test_simulation --seed " +
          std::to_string(options.seed);
  if (options.planted != Planted::none) text += " --planted " + name_of(options.planted);
  return text + "\n";
}

}  // namespace trireme::simulation
