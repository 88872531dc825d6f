#include "test/simulation/world.h"

#include <sys/single_threaded.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace trireme::simulation {

namespace {

World* current = nullptr;  // while one of its threads runs

// Stacks that threads of earlier worlds have left.
std::vector<std::unique_ptr<emulation::Fiber>>& spare_fibers() {
  static std::vector<std::unique_ptr<emulation::Fiber>> fibers;
  return fibers;
}

void swap_exceptions(Thread& thread) {
  void* globals[2];
  void* const place = abi::__cxa_get_globals();
  std::memcpy(globals, place, sizeof globals);
  std::memcpy(place, thread.caught, sizeof globals);
  std::memcpy(thread.caught, globals, sizeof globals);
}

}  // namespace

World* simulated() { return current; }

Outside::Outside() : world_(std::exchange(current, nullptr)) {}
Outside::~Outside() { current = world_; }

// Libraries leave out what only several threads need while the C library counts one.
World::World(uint64_t seed) : random(seed) { __libc_single_threaded = 0; }

World::~World() {
  for (const auto& process : processes_)
    if (!process->dead) die(*process, SIGKILL);
  bury();
}

Process& World::spawn(const Start& start, std::function<int()> program) {
  const Unowned unowned;
  Process& process = *processes_.emplace_back(std::make_unique<Process>());
  process.id = static_cast<int>(processes_.size()) + 100;
  process.group = start.parent != nullptr ? start.parent->group : process.id;
  process.node = start.node, process.parent = start.parent, process.name = start.name;
  process.environment = start.environment, process.job = start.job, process.rank = start.rank;
  start_thread(process, [this, program = std::move(program)] { exit(program()); });
  note("start ", process.name, " as process ", std::to_string(process.id));
  return process;
}

std::unique_ptr<emulation::Fiber> World::take_fiber() {
  auto& spare = spare_fibers();
  if (spare.empty()) return std::make_unique<emulation::Fiber>();
  std::unique_ptr<emulation::Fiber> fiber = std::move(spare.back());
  spare.pop_back();
  return fiber;
}

Thread& World::start_thread(Process& process, std::function<void()> body) {
  const Unowned unowned;
  Thread& thread = *threads_.emplace_back(std::make_unique<Thread>());
  thread.id = static_cast<int>(threads_.size()), thread.process = &process;
  thread.body = std::move(body), thread.fiber = take_fiber(), thread.heap = &process.heap;
  thread.fiber->begin(&World::enter, &thread);
  process.threads.push_back(&thread);
  schedule(thread, now + random.below(100 * kMicrosecond));
  return thread;
}

void World::enter(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  World& world = *current;
  try {
    thread.body();
  } catch (const std::exception& error) {
    const Unowned unowned;
    world.fail(thread.process->name + " ends by an exception: " + error.what());
  }
  own_by(nullptr);
  thread.ended = true;
  world.wake(&thread);
}

void World::schedule(Thread& thread, int64_t time) {
  const Unowned unowned;
  thread.ticket = ++tickets_;
  queue_.push({time, thread.ticket, &thread});
}

void World::pause() {
  Thread& thread = *running_;
  thread.fiber->pause();
  own_by(nullptr);
}

void World::resume(Thread& thread) {
  thread.ticket = 0;
  running_ = &thread, self_ = thread.process, current = this;
  swap_exceptions(thread);
  own_by(thread.ended ? nullptr : thread.heap);
  thread.fiber->resume();
  own_by(nullptr);
  swap_exceptions(thread);
  running_ = nullptr, self_ = nullptr, current = nullptr;
}

bool World::run(int64_t most) {
  while (failure.empty() && calls < most) {
    run_events();
    bury();
    while (!queue_.empty() && queue_.top().thread->ticket != queue_.top().ticket) queue_.pop();
    const bool timer = !timers_.empty() && (queue_.empty() || timers_.begin()->first <= queue_.top().time);
    if (timer) {
      now = std::max(now, timers_.begin()->first);
      const auto event = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      event();
      continue;
    }
    if (queue_.empty()) return true;
    const Entry entry = queue_.top();
    queue_.pop();
    now = std::max(now, entry.time);
    if (entry.thread->process->dead) continue;
    if (entry.thread->process->frozen_until > now)
      schedule(*entry.thread, entry.thread->process->frozen_until);
    else
      resume(*entry.thread);
  }
  return !failure.empty();
}

void World::run_events() {
  while (!at_calls_.empty() && at_calls_.begin()->first <= calls) {
    const auto event = std::move(at_calls_.begin()->second);
    at_calls_.erase(at_calls_.begin());
    event();
  }
}

void World::at_call(int64_t call, std::function<void()> event) { at_calls_.emplace(call, std::move(event)); }
void World::cancel_events() { at_calls_.clear(), timers_.clear(); }
void World::after(int64_t nanoseconds, std::function<void()> event) { timers_.emplace(now + nanoseconds, std::move(event)); }

// Frees what dead processes held, once none of their threads runs.
void World::bury() {
  for (Process* process : std::exchange(dead_, {})) {
    for (Thread* thread : process->threads) {
      if (thread->fiber) spare_fibers().push_back(std::move(thread->fiber));
      thread->body = {};
    }
    process->heap.clear();
  }
}

void World::pass(const char* call, std::string_view detail) {
  ++calls;
  Thread& thread = *running_;
  ++thread.calls;
  int64_t time = random.below(8) == 0 ? random.below(2 * kMillisecond) : random.below(20 * kMicrosecond);
  if (weather.slow > 0 && random.chance(weather.slow)) time = random.below(weather.slowest);
  const bool event =
      (!at_calls_.empty() && at_calls_.begin()->first <= calls) || (!timers_.empty() && timers_.begin()->first <= now + time);
  const bool alone = !event && (queue_.empty() || queue_.top().time > now + time);
  if (alone) {
    now += time;
  } else {
    schedule(thread, now + time);
    pause();
  }
  if (traced) note(call, " ", detail);
}

bool World::wait(const void* address, int64_t until) {
  const Unowned unowned;
  ++calls;
  Thread& thread = *running_;
  thread.waits_on = address, thread.woken = false;
  if (until >= 0) schedule(thread, std::max(until, now + 1));
  pause();
  thread.waits_on = nullptr;
  return thread.woken;
}

void World::sleep(int64_t nanoseconds) {
  const Unowned unowned;
  ++calls;
  schedule(*running_, now + std::max<int64_t>(nanoseconds, 1));
  pause();
}

void World::wake(const void* address, int count) {
  if (address == nullptr) return;
  for (const auto& thread : threads_) {
    if (count == 0) return;
    if (thread->waits_on != address || thread->process->dead) continue;
    thread->waits_on = nullptr, thread->woken = true;
    schedule(*thread, now + random.below(10 * kMicrosecond));
    --count;
  }
}

void World::exit(int code) {
  own_by(nullptr);
  die(self(), code << 8);
  pause();
  std::abort();
}

void World::trace_line(const std::string& line) {
  const Unowned unowned;
  const std::string who = self_ != nullptr ? self_->name + "." + std::to_string(running_ != nullptr ? running_->id : 0) : "-";
  char time[32];
  snprintf(time, sizeof time, "%11.6f", static_cast<double>(now - kSecond) / kSecond);
  trace.push_back(std::string(time) + "  " + std::to_string(calls) + "  " + who + "  " + line);
}

void World::fail(const std::string& what) {
  const Unowned unowned;
  note("FAILURE: ", what);
  if (failure.empty()) failure = what;
}

}  // namespace trireme::simulation
