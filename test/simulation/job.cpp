#include "test/simulation/job.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <list>
#include <utility>

#include "base/error.h"
#include "train/run/supervise.h"

namespace trireme::simulation {

namespace {

void note_signal(int) {}

// Ends the ranks that live: asks them first, as launchers do.
void end_ranks(World& world, const std::vector<Process*>& ranks) {
  for (Process* rank : ranks) world.send(*rank, SIGTERM);
  world.sleep(world.random.below(kSecond));
  for (Process* rank : ranks) world.send(*rank, SIGKILL);
}

RunProcesses processes_of_job(World& world, int launcher) {
  RunProcesses found;
  for (const auto& process : world.processes()) {
    if (process->parent == nullptr || process->parent->id != launcher) continue;
    found.any = true, found.alive |= !process->dead;
    if (!process->dead) found.ranks.push_back(process->id);
    for (const Thread* thread : process->threads) found.scheduled += static_cast<uint64_t>(thread->calls);
  }
  return found;
}

}  // namespace

Cluster*& cluster() {
  static Cluster* the = nullptr;
  return the;
}

int code_of_status(int status) { return (status & 0x7f) != 0 ? 128 + (status & 0x7f) : status >> 8; }

Process& start_job(Cluster& c, Process* parent) {
  const Unowned unowned;
  const int64_t job = ++c.jobs;
  return c.world.spawn({.name = "mpirun" + std::to_string(job), .parent = parent, .job = job},
                       [&c, job] { return run_launcher(c, job); });
}

// Passes signals on to the ranks, and ends them all when one of them fails.
int run_launcher(Cluster& c, int64_t job) {
  World& world = c.world;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) std::signal(signal, note_signal);
  const Unowned unowned;
  std::vector<Process*> ranks;
  for (int64_t rank = 0; rank < c.job.ranks; ++rank) {
    World::Start start{
        .name = "job" + std::to_string(job) + ".rank" + std::to_string(rank), .parent = &world.self(), .job = job, .rank = rank};
    start.node = static_cast<int>(rank * c.job.nodes / c.job.ranks);
    start.environment = {{"OMPI_COMM_WORLD_SIZE", std::to_string(c.job.ranks)}};
    ranks.push_back(&world.spawn(start, [&c] { return run_rank(c); }));
  }
  for (int passed = 0;;) {
    size_t ended = 0;
    for (const Process* rank : ranks) {
      ended += rank->dead;
      if (!rank->dead || rank->status == 0 || code_of_status(rank->status) == static_cast<int>(ExitCode::stopped)) continue;
      end_ranks(world, ranks);
      return code_of_status(rank->status);
    }
    if (ended == ranks.size()) return code_of_status(ranks.front()->status);
    if (const int signal = world.self().signalled; signal != passed) {
      passed = signal;
      for (Process* rank : ranks) world.send(*rank, signal);
    }
    (void)world.wait(&world.self());  // for the end of a rank, or a signal
  }
}

// The product's supervise over this world.
int run_supervisor(Cluster& c) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) std::signal(signal, note_signal);
  std::list<OutputRelay> relays;
  SuperviseIo io(relays);
  io.heard = [](pid_t) { return std::string(); };
  io.processes = [&c](pid_t launcher) { return processes_of_job(c.world, launcher); };
  io.start = [&c](const std::vector<std::string>&) { return start_job(c, &c.world.self()).id; };
  io.stop_signal = [&c] { return c.world.self().signalled; };
  bool gave_up = false;
  io.say = [&](const std::string& line) {
    gave_up |= line.find("gave up") != std::string::npos;
    const Unowned unowned;
    c.world.note(line);
  };
  io.record = [&c, record = io.record](const std::string& run, const Attempt& attempt) {
    record(run, attempt);
    c.truth.attempt(attempt.code);
  };
  c.truth.supervise_starts();
  RunConfig config;
  config.train.runs = kRuns, config.train.name = "demo";
  const LaunchedTraining training{
      .words = {"mpirun"}, .config = "c.yaml", .set = {}, .ranks = c.job.ranks, .ranks_at = {}, .by_mpirun = true};
  const ExitCode code = supervise(io, {.command = {}}, training, config);
  if (gave_up) c.truth.gave_up();
  return static_cast<int>(code);
}

namespace {

bool has_watcher(World& world, const Process& command) {
  return std::ranges::any_of(
      world.processes(), [&](const auto& other) { return other->group == command.group && &*other != &command && !other->dead; });
}

// The user's command: waits for its watcher, then reads the checkpoint for a while.
int run_command(Cluster& c) {
  Process& self = c.world.self();
  const Unowned unowned;
  while (self.parent != nullptr && !has_watcher(c.world, self)) (void)c.world.wait(&self);
  if (!has_watcher(c.world, self)) return 1;
  c.truth.command_starts(self, self.environment["TRIREME_CHECKPOINT"], std::stoll(self.environment["TRIREME_STEP"]));
  c.world.sleep(c.world.random.below(c.job.command_time));
  c.truth.command_ends(self);
  return c.job.command_fails ? 1 : 0;
}

// Waits for the end of the rank, as a shell at a pipe does, and then ends its group.
int run_watcher(Cluster& c) {
  const Process& self = c.world.self();
  while (self.parent != nullptr) (void)c.world.wait(&self);
  for (const auto& process : c.world.processes())
    if (process->group == self.group) c.world.send(*process, SIGKILL);
  return 0;
}

}  // namespace

Process& start_command(World& world, int group, char* const variables[]) {
  const Unowned unowned;
  World::Start start{.name = group != 0 ? "watcher" : "command", .node = world.self().node, .parent = &world.self()};
  for (char* const* variable = variables; *variable != nullptr; ++variable) {
    const std::string words = *variable;
    start.environment[words.substr(0, words.find('='))] = words.substr(words.find('=') + 1);
  }
  Cluster& c = *cluster();
  const bool watches = start.name == "watcher";
  Process& made = world.spawn(start, [&c, watches] { return watches ? run_watcher(c) : run_command(c); });
  made.group = group == 0 ? made.id : group;
  for (const auto& process : world.processes())
    if (process->id == group) world.wake(process.get());  // the command, whose watcher this is
  return made;
}

}  // namespace trireme::simulation
