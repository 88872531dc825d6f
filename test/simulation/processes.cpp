// Ends of processes, signals and losses of machines.
#include <algorithm>
#include <cerrno>
#include <csignal>

#include "test/simulation/world.h"

namespace trireme::simulation {

namespace {

bool ends_by_default(int signal) { return signal != SIGCHLD && signal != SIGCONT && signal != SIGURG && signal != SIGWINCH; }

}  // namespace

Process* World::find(int id) {
  const auto index = static_cast<size_t>(id - 101);
  return id > 100 && index < processes_.size() ? processes_[index].get() : nullptr;
}

void World::die(Process& process, int status) {
  if (process.dead) return;
  const Unowned unowned;
  note(process.name, " ends with ", std::to_string((status & 0x7f) != 0 ? 128 + (status & 0x7f) : status >> 8));
  process.dead = true, process.status = status;
  for (OpenFile& file : process.files)
    if (file.used && !file.terminal && file.disk->at(file.inode).lock == &file) file.disk->at(file.inode).lock = nullptr;
  dead_.push_back(&process);
  wake(process.parent);
  for (const auto& child : processes_)
    if (child->parent == &process) {
      child->parent = nullptr;
      wake(child.get());
      if (child->dies_with_parent) die(*child, SIGKILL);
    }
}

void World::send(Process& process, int signal) {
  if (process.dead || signal == 0) return;
  note("signal ", std::to_string(signal), " to ", process.name);
  process.signalled = signal;
  wake(&process);
  if (signal != SIGKILL && process.handlers[signal] == SIG_IGN) return;
  if (signal == SIGKILL || (process.handlers[signal] == SIG_DFL && ends_by_default(signal))) return die(process, signal);
  if (process.handlers[signal] == SIG_DFL) return;
  Process* const before = std::exchange(self_, &process);
  process.handlers[signal](signal);
  self_ = before;
}

void World::lose_node(int node) {
  const Unowned unowned;
  note("node ", std::to_string(node), " is lost");
  for (const auto& process : processes_)
    if (process->node == node) die(*process, SIGKILL);
  memory.erase(node);
}

void World::lose_power(double survival) {
  const Unowned unowned;
  note("power is lost");
  for (const auto& process : processes_) die(*process, SIGKILL);
  memory.clear();
  shared.lose_power(random, survival);
}

Disk& World::disk_of(std::string_view path, int node, std::string_view& rest) {
  constexpr std::string_view kMemory = "/dev/shm";
  rest = path;
  if (!path.starts_with(kMemory)) return shared;
  rest.remove_prefix(kMemory.size());
  return memory[node];
}

Call::Call(const char* name, std::string_view detail) : world_(simulated()), name_(name), detail_(detail) {
  world_->pass(name, detail);
}

Call::~Call() {
  if (world_->running() == nullptr || !world_->running()->process->dead) return;
  (void)world_->wait(nullptr);  // for ever: it was killed by its own call
}

bool Call::fails(bool writes) {
  World& w = *world_;
  int reason = 0;
  if (writes && w.now >= w.weather.full_from && w.now < w.weather.full_until) reason = ENOSPC;
  if (w.random.chance(writes ? w.weather.error : w.weather.read_error)) reason = writes && w.random.chance(0.5) ? ENOSPC : EIO;
  if (w.random.chance(w.weather.interrupt)) reason = EINTR;
  if (reason == 0) return false;
  w.note("  fails: ", std::to_string(reason));
  errno = reason;
  return true;
}

int Call::error(int number) const {
  errno = number;
  return -1;
}

}  // namespace trireme::simulation
