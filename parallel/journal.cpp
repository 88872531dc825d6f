#include "parallel/journal.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/clock.h"
#include "base/process_state.h"
#include "base/text_stream.h"
#include "parallel/offered_memory.h"

namespace trireme {
namespace {

constexpr size_t kThreads = 16, kGroups = 32;
constexpr int64_t kLately = 2'000'000'000;  // nanoseconds

int64_t now() { return Clock::now().time_since_epoch().count(); }

template <size_t n>
void put(std::array<char, n>& to, const char* from) {
  to.fill('\0');
  std::strncpy(to.data(), from, n - 1);
}

// A value that one thread writes and others read at any time without locks: complete, or not at
// all.
template <class T>
class Published {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

 public:
  void write(const T& value) {
    const auto words = std::bit_cast<std::array<uint64_t, sizeof(T) / 8>>(value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }
  // False after several attempts that met a write in progress: the writer was stopped in the middle
  // of it.
  bool read(T& value) const {
    for (int attempt = 0; attempt < 100; ++attempt) {
      const uint64_t before = version_.load(std::memory_order_acquire);
      std::array<uint64_t, sizeof(T) / 8> words;
      for (size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      value = std::bit_cast<T>(words);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return true;
    }
    return false;
  }

 private:
  std::atomic<uint64_t> version_ = 0;
  std::array<std::atomic<uint64_t>, sizeof(T) / 8> words_{};
};

}  // namespace

struct Journal::Page {
  const uint64_t mark = random_mark();  // at the begin: by it others know the memory
  int64_t rank = 0;
  int32_t process = 0;
  std::array<char, 64> host{};
  std::atomic<int64_t> moves = 0, moved = 0;              // number of progress marks, and time of the last
  std::atomic<int64_t> watchdog_ran = 0, gpu_waited = 0;  // last times
  std::atomic<int64_t> step = 0, part = 0, accused = -1;
  std::atomic<bool> confessed = false;
  std::array<char, 4096> confession{};
  Published<std::array<char, 24>> doing;
  std::array<std::atomic<int32_t>, kThreads> threads{};
  std::array<Published<JournalEntry>, kThreads> entries;
  struct Count {
    std::atomic<uint64_t> key = 0;  // 0: free
    std::atomic<int64_t> entered = 0;
    std::atomic<bool> on_gpu = false;  // the following have values
    std::array<char, 8> along{};
    GroupRanks group;
    std::atomic<uint64_t> entered_by_gpu = 0;
  };
  std::array<Count, kGroups> groups;

  void move() {
    moves.fetch_add(1, std::memory_order_relaxed);
    moved.store(now(), std::memory_order_relaxed);
  }
  // Finds or takes the calling thread's place; kThreads if none is left.
  size_t place(int32_t thread) {
    for (size_t i = 0; i < kThreads; ++i) {
      int32_t free = 0;
      if (threads[i].load(std::memory_order_relaxed) == thread || threads[i].compare_exchange_strong(free, thread)) return i;
    }
    return kThreads;
  }
  // Finds or takes the group's place; nullptr if none is left.
  Count* count_of(uint64_t key) {
    for (Count& group : groups) {
      uint64_t free = 0;
      if (group.key.load(std::memory_order_relaxed) == key || group.key.compare_exchange_strong(free, key)) return &group;
    }
    return nullptr;
  }
  // Number of the group's next wait.
  int64_t number(uint64_t key) {
    Count* const count = count_of(key);
    return count == nullptr ? 0 : ++count->entered;
  }
};

uint64_t group_key(const char* along, const GroupRanks& group, bool hosts) {
  uint64_t key = 1469598103934665603u;  // FNV-1a
  const auto add = [&](uint64_t value) { key = (key ^ value) * 1099511628211u; };
  for (; *along != '\0'; ++along) add(static_cast<unsigned char>(*along));
  for (const int32_t n : {group.first, group.stride, group.count}) add(static_cast<uint32_t>(n));
  if (hosts) add('h');
  return key | 1;
}

void Journal::Unmap::operator()(Page* page) const { munmap(page, sizeof(Page)); }

Journal::Journal(int64_t rank) : memory_(memfd_create("trireme-journal", MFD_CLOEXEC)) {
  const bool there = memory_ >= 0 && ftruncate(memory_, sizeof(Page)) == 0;
  void* const mapped = there ? mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0)
                             : mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(mapped != MAP_FAILED, text("cannot allocate the journal"));
  own_.reset(std::construct_at(static_cast<Page*>(mapped)));
  own_->rank = leader_ = rank;
  own_->process = getpid();
  put(own_->host, host_name().c_str());
  own_->move();
}

Journal::~Journal() {
  if (memory_ >= 0) close(memory_);
}

void Journal::connect(const World& world, int64_t node_ranks) {
  const std::string machine = machine_words();
  for (const std::string& words : world.tell_node(text(machine, ' ', getpid(), ' ', memory_, ' ', own_->mark, ' ', world.rank()))) {
    OfferedMemory theirs{.bytes = sizeof(Page)};
    int64_t rank = 0;
    TextReader(words) >> theirs.machine >> theirs.process >> theirs.file >> theirs.mark >> rank;
    if (rank == world.rank() || (node_ranks > 0 && rank / node_ranks != world.rank() / node_ranks)) continue;
    const std::byte* const page = theirs.machine == machine ? view_of(theirs) : nullptr;
    if (page == nullptr) continue;  // in another container, another user's, or hidden by the kernel: judge without it
    leader_ = std::min(leader_, rank);
    others_.emplace_back(reinterpret_cast<Page*>(const_cast<std::byte*>(page)));
  }
}

void Journal::enter(const RankWait& wait) {
  const int32_t thread = gettid();
  JournalEntry entry{.group = wait.group,
                     .peer = static_cast<int32_t>(wait.peer),
                     .number = wait.peer < 0 ? own_->number(group_key(wait.along, wait.group, wait.hosts)) : 0,
                     .bytes = wait.bytes,
                     .since = now(),
                     .thread = thread,
                     .inside = 1,
                     .hosts = wait.hosts ? 1 : 0};
  put(entry.what, wait.what);
  put(entry.along, wait.along);
  if (const size_t place = own_->place(thread); place < kThreads) own_->entries[place].write(entry);
  own_->move();
}

void Journal::leave() {
  const size_t place = own_->place(gettid());
  JournalEntry entry;
  if (place < kThreads && own_->entries[place].read(entry)) {
    entry.inside = 0;
    entry.since = now();
    own_->entries[place].write(entry);
  }
  own_->move();
}

void Journal::doing(const char* what) {
  std::array<char, 24> words;
  put(words, what);
  waits_for_disk_ = words.data() != std::string("training") && words.data() != std::string("evaluating");
  own_->doing.write(words);
  own_->move();
}

void Journal::begin(int64_t step) {
  own_->step = step;
  own_->part = 0;
  own_->move();
}

void Journal::mark_progress() {
  own_->part.fetch_add(1, std::memory_order_relaxed);
  own_->move();
}

void Journal::disk_moved() {
  if (waits_for_disk_) own_->move();
}

void Journal::gpu_waited() { own_->gpu_waited = now(); }
void Journal::watchdog_ran() { own_->watchdog_ran = now(); }

void Journal::each(const std::function<void(const Page&)>& look) const {
  look(*own_);
  for (const auto& page : others_) look(*page);
}

std::span<std::byte> Journal::memory() { return {reinterpret_cast<std::byte*>(own_.get()), sizeof(Page)}; }

std::byte* Journal::gpu_counter(const char* along, const GroupRanks& group) {
  Page::Count* const count = own_->count_of(group_key(along, group));
  if (count == nullptr) return nullptr;
  put(count->along, along);
  count->group = group;
  count->on_gpu.store(true, std::memory_order_release);
  return reinterpret_cast<std::byte*>(&count->entered_by_gpu);
}

void Journal::accuse(int64_t rank) { own_->accused = rank; }

int64_t Journal::accused() const {
  int64_t rank = -1;
  each([&](const Page& page) { rank = std::max(rank, page.accused.load()); });
  return rank;
}

int64_t Journal::accuser() const {
  int64_t rank = -1;
  each([&](const Page& page) {
    if (page.accused >= 0) rank = page.rank;
  });
  return rank;
}

void Journal::confess(const std::string& where) {
  put(own_->confession, where.c_str());
  own_->confessed = true;
}

std::string Journal::confession(int64_t rank) const {
  std::string where;
  each([&](const Page& page) {
    if (page.rank == rank && page.confessed) where = page.confession.data();
  });
  return where;
}

int64_t Journal::leader() const { return leader_; }

int64_t Journal::moves() const {
  int64_t sum = 0;
  each([&](const Page& page) { sum += page.moves.load(std::memory_order_relaxed); });
  return sum;
}

std::vector<RankReport> Journal::look() const {
  std::vector<RankReport> reports;
  each([&](const Page& page) {
    RankReport report{
        .rank = page.rank,
        .process = page.process,
        .host = page.host.data(),
        .state = state_of_process(page.process).letter,
        .step = page.step,
        .part = page.part,
        .doing = {},
        .silent = 1e-9 * static_cast<double>(now() - page.moved),
        .watched = now() - page.watchdog_ran<kLately, .waits_for_gpu = page.gpu_waited> 0 && now() - page.gpu_waited < kLately,
        .share = {},
        .entries = {},
        .entered = {}};
    if (std::array<char, 24> words; page.doing.read(words)) report.doing = words.data();
    for (size_t i = 0; i < kThreads && page.threads[i] != 0; ++i)
      if (JournalEntry entry; page.entries[i].read(entry) && entry.since > 0) report.entries.push_back(entry);
    for (const auto& group : page.groups) {
      if (group.key != 0) report.entered[group.key] = group.entered;
      if (group.on_gpu.load(std::memory_order_acquire))
        report.on_gpu.push_back(
            {.along = group.along, .group = group.group, .entered = static_cast<int64_t>(group.entered_by_gpu.load())});
    }
    reports.push_back(std::move(report));
  });
  std::sort(reports.begin(), reports.end(), [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  return reports;
}

}  // namespace trireme
