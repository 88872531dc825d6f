#include "parallel/offered_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "base/file.h"

namespace trireme {

std::string machine_words() {
  struct stat facts {};
  std::string words = text_of_file("/proc/sys/kernel/random/boot_id", 64);
  std::erase_if(words, [](char c) { return c <= ' '; });
  const bool known = !words.empty() && stat("/proc/self/ns/pid", &facts) == 0;
  return known ? std::string(text(words, "-", facts.st_ino)) : std::string(text("unknown-", std::random_device()(), "-", getpid()));
}

uint64_t random_mark() {
  std::random_device dice;
  const uint64_t high = dice();
  return high << 32 | dice();
}

const std::byte* view_of(const OfferedMemory& offer) {
  if (offer.file < 0 || offer.bytes < static_cast<int64_t>(sizeof offer.mark)) return nullptr;
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

}  // namespace trireme
