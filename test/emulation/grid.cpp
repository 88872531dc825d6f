#include "test/emulation/grid.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <vector>

#include "test/emulation/fiber.h"

trireme::emulation::Place3 threadIdx{}, blockIdx{};
trireme::emulation::Dims blockDim{}, gridDim{};

namespace trireme::emulation {
namespace {

constexpr size_t kWarp = 32, kGuard = 256;  // bytes after shared memory that nobody may write
constexpr std::byte kUnset{0xff};           // of floats: NaN

// Reason for which a thread waits.
enum class Wait { nothing, barrier, warp, ended };
struct Thread {
  Fiber fiber;
  size_t number = 0;  // in its block
  Place3 place{};
  Wait wait = Wait::ended;
  Site site{};
  unsigned mask = 0;  // of a warp's op
  const char* op = nullptr;
  void* mine = nullptr;
};

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct Machine {
  std::mutex mutex;  // one grid at a time
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<unsigned> at_work;  // for each warp: lanes that are neither in a warp's op nor ended
  std::unique_ptr<std::byte, FreeDeleter> shared;
  size_t shared_bytes = 0;  // with its guard
  size_t size = 0;          // threads of the block
  size_t current = 0;
  const std::function<void()>* work = nullptr;
  bool failed = false;  // a thread has set the problem
  std::string problem;
  uint64_t launches = 0, blocks = 0, random = 88172645463325252u;
};
Machine& machine() {
  static Machine one;
  return one;
}

uint64_t next_random(Machine& m) {  // Marsaglia's xorshift
  m.random ^= m.random << 13, m.random ^= m.random >> 7, m.random ^= m.random << 17;
  return m.random;
}

std::vector<size_t> in_order(Machine& m, size_t n) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  const uint64_t kind = m.launches % 3;
  if (kind == 1) std::reverse(order.begin(), order.end());
  if (kind == 2)
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[next_random(m) % i]);
  return order;
}

std::string where(const Thread& t) {
  std::ostringstream out;
  out << "thread (" << t.place.x << ", " << t.place.y << ", " << t.place.z << ")";
  if (t.wait == Wait::ended) {
    out << " has ended";
  } else {
    out << " waits at " << t.site.file_name() << ":" << t.site.line();
    if (t.wait == Wait::barrier) out << " (barrier)";
    if (t.wait == Wait::warp) out << " (" << t.op << " of lanes 0x" << std::hex << t.mask << ")";
  }
  return out.str();
}

void run_thread(void*) {
  Machine& m = machine();
  try {
    (*m.work)();
  } catch (const GridError& error) {
    m.problem = error.what(), m.failed = true;
  }
  m.threads[m.current]->wait = Wait::ended;
  m.at_work[m.current / kWarp] &= ~(1u << m.current % kWarp);
}

bool same_site(const Thread& a, const Thread& b) {
  const char *in_a = a.site.file_name(), *in_b = b.site.file_name();
  return a.site.line() == b.site.line() && a.site.column() == b.site.column() && (in_a == in_b || std::strcmp(in_a, in_b) == 0);
}

// When no thread can run, opens the barrier if all threads that have not ended are there. Returns
// true if it does.
bool open_barrier(Machine& m) {
  const Thread* first = nullptr;
  for (size_t i = 0; i < m.size; ++i) {
    const Thread& t = *m.threads[i];
    if (t.wait == Wait::warp) return false;
    if (t.wait != Wait::barrier) continue;
    if (first == nullptr) first = &t;
    if (same_site(*first, t)) continue;
    m.problem = "a barrier is reached from different places: " + where(*first) + ", " + where(t);
    return false;
  }
  for (size_t i = 0; i < m.size; ++i)
    if (m.threads[i]->wait == Wait::barrier) m.threads[i]->wait = Wait::nothing;
  return true;
}

void describe_deadlock(Machine& m) {
  if (!m.problem.empty()) return;
  const Thread* stuck = nullptr;
  const Thread* other = nullptr;
  for (size_t i = 0; i < m.size; ++i)
    if (m.threads[i]->wait != Wait::ended) stuck = m.threads[i].get();
  for (size_t i = 0; i < m.size; ++i)
    if (m.threads[i]->wait != stuck->wait || !same_site(*m.threads[i], *stuck)) other = m.threads[i].get();
  m.problem = "threads wait for others that never come: " + where(*stuck) + (other != nullptr ? ", " + where(*other) : "");
}

[[gnu::always_inline, gnu::target("general-regs-only")]] inline bool run_if_it_can(Machine& m, Thread& t) {
  if (t.wait != Wait::nothing || m.failed) return false;
  m.current = t.number, threadIdx = t.place;
  t.fiber.resume();
  return true;
}

// The block's threads by number, and in the order of their turns. With `ahead`, a warp runs alone as far as it can: ahead of those
// that it should wait for.
struct Turns {
  Thread* const* all;
  Thread* const* order;
  bool ahead;
};

// Returns true if a thread ran.
[[gnu::noinline, gnu::target("general-regs-only")]] bool run_those_who_can(Machine& m, const Turns& turns) {
  bool ran = false;
  for (size_t i = 0; i < m.size; ++i) {
    Thread& t = *turns.order[i];
    if (!run_if_it_can(m, t)) continue;
    ran = true;
    const size_t warp = t.number / kWarp * kWarp, end = warp + kWarp < m.size ? warp + kWarp : m.size;
    for (bool again = turns.ahead; again;) {
      again = false;
      for (size_t lane = warp; lane < end; ++lane) again = run_if_it_can(m, *turns.all[lane]) || again;
    }
  }
  return ran;
}

void run_block(Machine& m) {
  std::vector<Thread*> all, order;
  for (size_t i = 0; i < m.size; ++i) all.push_back(m.threads[i].get());
  for (const size_t i : in_order(m, m.size)) order.push_back(all[i]);
  const Turns turns{.all = all.data(), .order = order.data(), .ahead = block_chance(0)};
  m.at_work.assign((m.size + kWarp - 1) / kWarp, ~0u);
  for (size_t i = 0; i < m.size; ++i) {
    Thread& t = *m.threads[i];
    const auto n = static_cast<unsigned>(i);
    t.place = {n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y};
    t.number = i, t.wait = Wait::nothing;
    t.fiber.begin(run_thread, nullptr);
  }
  for (;;) {
    bool alive = false;
    const bool ran = run_those_who_can(m, turns);
    if (!m.problem.empty()) return;
    for (size_t i = 0; i < m.size; ++i) alive |= m.threads[i]->wait != Wait::ended;
    if (!alive) return;
    if (ran || open_barrier(m)) continue;
    return describe_deadlock(m);
  }
}

}  // namespace

void run_grid(Dims grid, Dims block, size_t shared_bytes, const std::function<void()>& thread) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (block.count() < 1 || block.count() > kMostThreads)
    throw GridError("a block of " + std::to_string(block.count()) + " threads");
  if (shared_bytes > most_shared()) throw GridError("a block with " + std::to_string(shared_bytes) + " bytes of shared memory");
  if (grid.count() < 1 || grid.y > 65535 || grid.z > 65535)
    throw GridError("a grid of " + std::to_string(grid.count()) + " blocks");
  ++m.launches;
  m.size = block.count(), m.work = &thread, m.failed = false, m.problem.clear();
  while (m.threads.size() < m.size) m.threads.push_back(std::make_unique<Thread>());
  const size_t bytes = (shared_bytes + kGuard + 127) / 128 * 128;
  allow(m.shared.get(), m.shared_bytes);
  m.shared_bytes = bytes;
  m.shared.reset(static_cast<std::byte*>(std::aligned_alloc(128, bytes)));
  blockDim = block, gridDim = grid;
  for (const size_t i : in_order(m, grid.count())) {
    const auto n = static_cast<unsigned>(i);
    blockIdx = {n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y};
    ++m.blocks;
    allow(m.shared.get(), bytes);
    std::memset(m.shared.get(), static_cast<int>(kUnset), bytes);
    const bool forbidden = forbid(m.shared.get() + shared_bytes, bytes - shared_bytes);
    run_block(m);
    if (m.problem.empty() && !forbidden &&
        !std::all_of(m.shared.get() + shared_bytes, m.shared.get() + bytes, [](std::byte b) { return b == kUnset; }))
      m.problem = "a write beyond the " + std::to_string(shared_bytes) + " bytes of shared memory";
    if (!m.problem.empty())
      throw GridError(m.problem + "; block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
                      std::to_string(blockIdx.z) + ")");
  }
}

size_t fact(const char* name, size_t usual) {
  const char* const wanted = std::getenv(name);
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : usual;
}

uint64_t block_number() { return machine().blocks; }
bool block_chance(int which) { return machine().blocks * 0x9e3779b97f4a7c15u >> (60 + which) & 1; }

std::byte* shared_memory() { return machine().shared.get(); }

void sync_threads(Site site) {
  Thread& t = *machine().threads[machine().current];
  t.wait = Wait::barrier, t.site = site;
  t.fiber.pause();  // continues when its wait is set to nothing
}

void with_warp(unsigned mask, const char* op, void* mine, void (*apply)(Lanes, const void*), const void* context, Site site) {
  Machine& m = machine();
  Thread& t = *m.threads[m.current];
  const size_t base = m.current / kWarp * kWarp;
  t.wait = Wait::warp, t.site = site, t.mask = mask, t.op = op, t.mine = mine;
  const auto fail = [&](const Thread& other, const char* what) {
    throw GridError(std::string(op) + ": " + what + ": " + where(t) + ", " + where(other));
  };
  if ((mask >> (m.current - base) & 1) == 0) fail(t, "the lane is not in its own mask");
  unsigned& at_work = m.at_work[base / kWarp];
  at_work &= ~(1u << (m.current - base));
  if (base + kWarp <= m.size && (at_work & mask) != 0) return t.fiber.pause();  // the last lane to arrive does the work
  void* lanes[kWarp] = {};
  for (size_t lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    if (base + lane >= m.size) fail(t, "lanes of the mask that the block does not have");
    const Thread& other = *m.threads[base + lane];
    if (other.wait == Wait::ended || (other.wait == Wait::warp && other.mask == mask && !same_site(other, t)))
      fail(other, "the lanes are not together");
    if (other.wait != Wait::warp || other.mask != mask) return t.fiber.pause();
    lanes[lane] = other.mine;
  }
  apply(lanes, context);
  for (size_t lane = 0; lane < kWarp; ++lane)
    if ((mask >> lane & 1) != 0) m.threads[base + lane]->wait = Wait::nothing;
  at_work |= mask;
}

}  // namespace trireme::emulation
