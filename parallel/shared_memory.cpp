#include "parallel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include "base/file.h"
#include "base/text_stream.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

// Processes with the same words see each other by number.
std::string machine() {
  struct stat facts {};
  std::string words = text_of_file("/proc/sys/kernel/random/boot_id", 64);
  std::erase_if(words, [](char c) { return c <= ' '; });
  const bool known = !words.empty() && stat("/proc/self/ns/pid", &facts) == 0;
  return known ? std::string(text(words, "-", facts.st_ino)) : std::string(text("unknown-", std::random_device()(), "-", getpid()));
}

// An arena, in the words of its rank.
struct Offer {
  std::string machine;
  int64_t process = 0, file = -1, bytes = 0;
  uint64_t mark = 0;  // stands at the memory's begin meanwhile
};

std::vector<Offer> offers_of_all(const Comm& comm, const Offer& mine) {
  std::string all;
  for (const std::string& line :
       gather(comm, std::string(text(mine.machine, " ", mine.process, " ", mine.file, " ", mine.bytes, " ", mine.mark, "\n"))))
    all += line;
  TextReader in(broadcast(comm, all));
  std::vector<Offer> offers(static_cast<size_t>(comm.size()));
  for (Offer& offer : offers) in >> offer.machine >> offer.process >> offer.file >> offer.bytes >> offer.mark;
  require(!in.fail(), text("offers of memory along ", comm.axis(), " cannot be read"));
  return offers;
}

// The memory of another process, to read; nullptr if the system refuses.
const std::byte* view_of(const Offer& offer) {
  const std::string path = text("/proc/", offer.process, "/fd/", offer.file);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // it may be anything, until the mark is seen
  if (file < 0) return nullptr;
  struct stat facts {};
  const bool whole = fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size == offer.bytes;
  void* const mapped = whole ? mmap(nullptr, static_cast<size_t>(offer.bytes), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, static_cast<size_t>(offer.bytes), MADV_DONTDUMP);  // a core file has this process's own
  const auto* const view = static_cast<const std::byte*>(mapped);
  if (std::memcmp(view, &offer.mark, sizeof offer.mark) == 0) return view;
  munmap(mapped, static_cast<size_t>(offer.bytes));
  return nullptr;
}

}  // namespace

bool lie_together(const Comm& comm) {
  if (comm.size() == 1 || comm.group() == 0) return false;
  const Offer mine{.machine = machine()};
  const std::vector<Offer> all = offers_of_all(comm, mine);
  const auto here = [&](const Offer& offer) { return offer.machine == mine.machine; };
  const auto [first, count] = near_ranks(comm);
  const auto near = std::span(all).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  return largest(comm, std::ranges::all_of(near, here) ? 0 : 1) == 0;
}

SharedMemory::SharedMemory(const Comm& comm, const Arena& arena)
    : comm_(comm), memory_(arena.buffer().data()), bytes_(arena.capacity()), views_(static_cast<size_t>(comm.size())) {
  const auto me = static_cast<size_t>(comm.rank());
  Offer mine{.machine = machine(), .process = getpid(), .file = arena.buffer().file(), .bytes = bytes_};
  uint64_t before = 0;
  const bool offers_some = mine.file >= 0 && bytes_ >= static_cast<int64_t>(sizeof mine.mark);
  if (offers_some) {
    std::random_device dice;
    mine.mark = static_cast<uint64_t>(dice()) << 32 | dice();
    std::memcpy(&before, memory_, sizeof before);
    std::memcpy(arena.buffer().data(), &mine.mark, sizeof mine.mark);
  }
  bool able = true;
  const std::vector<Offer> offers = offers_of_all(comm, mine);
  const auto [first, count] = near_ranks(comm);
  for (auto r = static_cast<size_t>(first); r < static_cast<size_t>(first + count); ++r) {
    if (r == me) continue;
    if (offers_some && offers[r].machine == mine.machine && offers[r].bytes == bytes_) views_[r] = view_of(offers[r]);
    able = able && views_[r] != nullptr;
  }
  const bool all_able = largest(comm, able ? 0 : 1) == 0;  // all have looked at the marks
  if (offers_some) std::memcpy(arena.buffer().data(), &before, sizeof before);
  if (!all_able) {
    close();
    return;
  }
  views_[me] = memory_;
  comm.share(*this);
}

SharedMemory::~SharedMemory() {
  comm_.unshare(*this);
  close();
}

void SharedMemory::close() {
  for (const std::byte*& view : views_) {
    if (view != nullptr && view != memory_) munmap(const_cast<std::byte*>(view), static_cast<size_t>(bytes_));
    view = nullptr;
  }
}

std::pair<int64_t, int64_t> near_ranks(const Comm& comm) {
  if (comm.locals() == 1) return {0, comm.size()};
  return {comm.rank() / comm.locals() * comm.locals(), comm.locals()};
}

std::vector<const std::byte*> shared_by_near(const Comm& comm, const void* here, int64_t bytes) {
  if (bytes < kFewestShared) return {};
  const auto [first, count] = near_ranks(comm);
  std::vector<const std::byte*> all;
  for (const SharedMemory* memory : comm.shared()) {
    if (!memory->holds(here)) continue;
    for (int64_t r = first; r < first + count; ++r) {
      const std::byte* const theirs = memory->of(r, here);
      if (theirs == nullptr) return {};
      all.push_back(theirs);
    }
    return all;
  }
  return {};
}

}  // namespace trireme
