#include "parallel/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/text_stream.h"
#include "parallel/host_collectives.h"
#include "parallel/offered_memory.h"

namespace trireme {

namespace {

std::vector<OfferedMemory> offers_of_all(const Comm& comm, const OfferedMemory& mine) {
  std::string all;
  for (const std::string& line :
       gather(comm, std::string(text(mine.machine, " ", mine.process, " ", mine.file, " ", mine.bytes, " ", mine.mark, "\n"))))
    all += line;
  TextReader in(broadcast(comm, all));
  std::vector<OfferedMemory> offers(static_cast<size_t>(comm.size()));
  for (OfferedMemory& offer : offers) in >> offer.machine >> offer.process >> offer.file >> offer.bytes >> offer.mark;
  require(!in.fail(), text("offers of memory along ", comm.axis(), " cannot be read"));
  return offers;
}

}  // namespace

bool lie_together(const Comm& comm) {
  if (comm.size() == 1 || comm.group() == 0) return false;
  const OfferedMemory mine{.machine = machine_words()};
  const std::vector<OfferedMemory> all = offers_of_all(comm, mine);
  const auto here = [&](const OfferedMemory& offer) { return offer.machine == mine.machine; };
  const auto [first, count] = near_ranks(comm);
  const auto near = std::span(all).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  return largest(comm, std::ranges::all_of(near, here) ? 0 : 1) == 0;
}

SharedMemory::SharedMemory(const Comm& comm, const Arena& arena)
    : comm_(comm), memory_(arena.buffer().data()), bytes_(arena.capacity()), views_(static_cast<size_t>(comm.size())) {
  const auto me = static_cast<size_t>(comm.rank());
  OfferedMemory mine{.machine = machine_words(), .process = getpid(), .file = arena.buffer().file(), .bytes = bytes_};
  uint64_t before = 0;
  const bool offers_some = mine.file >= 0 && bytes_ >= static_cast<int64_t>(sizeof mine.mark);
  if (offers_some) {
    mine.mark = random_mark();
    std::memcpy(&before, memory_, sizeof before);
    std::memcpy(arena.buffer().data(), &mine.mark, sizeof mine.mark);
  }
  bool able = true;
  const std::vector<OfferedMemory> offers = offers_of_all(comm, mine);
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
