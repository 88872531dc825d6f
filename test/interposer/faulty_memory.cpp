// Injects failures into allocations; load it before the C library. It counts the calls of one rank's
// process that allocate memory or start a thread, and makes some of them fail with ENOMEM or EAGAIN.
//   FAULTY_RANK         the rank whose calls count (OMPI_COMM_WORLD_RANK)
//   FAULTY_ALLOC_AT     the number of the call, from 1
//   FAULTY_ALLOC_FROM   the number of the first call, from which on all fail
//   FAULTY_ALLOC_SITE   a call stack's number, in hexadecimal: its first call fails
//   FAULTY_ALLOC_DEPTH  frames of a stack that count, from the innermost; default: 12
//   FAULTY_ALLOC_SITES  a file for a line for each stack at its first call: number, call, kind, frames
//   FAULTY_ALLOC_HIT    a file for the same line of the first call that failed
//   FAULTY_ALLOC_COUNT  a file for the number of calls
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

constexpr int kMostFrames = 32, kMostSites = 1 << 16;
constexpr int kOwnFrames = 3;  // innermost frames of a stack that belong to this file

const char* variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

struct Stack {
  std::array<void*, kMostFrames> frames;
  int count;
};

// The file that holds an address, and where it begins in memory.
struct Place {
  const char* file;
  uintptr_t begin;
};
Place place_of(void* address) {
  dl_find_object found;
  if (_dl_find_object(address, &found) != 0) return {"?", 0};
  const char* name = found.dlfo_link_map->l_name;
  return {name[0] == '\0' ? "program" : name, found.dlfo_link_map->l_addr};
}

// All that is counted; made by constant initialisation, since calls come before any constructor.
struct Counter {
  std::atomic<bool> counts = false;
  std::atomic<long> calls = 0;
  std::atomic<bool> hit = false;
  long at = 0, from = 0;
  uint64_t site = 0;
  int depth = 12, sites_file = -1, hit_file = -1, count_file = -1;
  std::array<std::atomic<uint64_t>, kMostSites> seen{};
};
Counter counter;

// Set while a call of this thread is examined, whose own allocations do not count.
thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

// The number of a stack is the same in each process, whatever the addresses of its libraries.
uint64_t number_of(const Stack& stack) {
  uint64_t number = 1469598103934665603u;
  const auto mix = [&](uint64_t value) { number = (number ^ value) * 1099511628211u, number ^= number >> 29; };
  for (int i = kOwnFrames; i < stack.count && i < kOwnFrames + counter.depth; ++i) {
    const Place place = place_of(stack.frames[static_cast<size_t>(i)]);
    for (const char* c = place.file; *c != '\0'; ++c) mix(static_cast<unsigned char>(*c));
    mix(reinterpret_cast<uintptr_t>(stack.frames[static_cast<size_t>(i)]) - place.begin);
  }
  return number | 1;
}

bool is_new(uint64_t number) {
  for (size_t at = number % kMostSites, tries = 0; tries < kMostSites; at = (at + 1) % kMostSites, ++tries) {
    uint64_t empty = 0;
    if (counter.seen[at].compare_exchange_strong(empty, number)) return true;
    if (empty == number) return false;
  }
  return false;
}

void describe(int file, const Stack& stack, uint64_t number, long call, const char* kind) {
  std::array<char, 8192> line;
  int end = snprintf(line.data(), line.size(), "%016lx %ld %s", static_cast<unsigned long>(number), call, kind);
  for (int i = kOwnFrames; i < stack.count && end < static_cast<int>(line.size()) - 300; ++i) {
    const Place place = place_of(stack.frames[static_cast<size_t>(i)]);
    const char* slash = strrchr(place.file, '/');
    end += snprintf(line.data() + end, 280, " %.200s+0x%lx", slash == nullptr ? place.file : slash + 1,
                    static_cast<unsigned long>(reinterpret_cast<uintptr_t>(stack.frames[static_cast<size_t>(i)]) - place.begin));
  }
  line[static_cast<size_t>(end++)] = '\n';
  (void)!write(file, line.data(), static_cast<size_t>(end));
}

// Whether this call fails. Never inlined, so that its own frames are of a fixed number.
[[gnu::noinline]] bool fails(const char* kind) {
  const int error = errno;
  const long call = ++counter.calls;
  bool now = (counter.at > 0 && call == counter.at) || (counter.from > 0 && call >= counter.from);
  const bool by_stack = (counter.site != 0 && !counter.hit) || counter.sites_file >= 0;
  if (by_stack || (now && counter.hit_file >= 0 && !counter.hit)) {
    Stack stack;
    stack.count = backtrace(stack.frames.data(), kMostFrames);
    const uint64_t number = number_of(stack);
    if (counter.sites_file >= 0 && is_new(number)) describe(counter.sites_file, stack, number, call, kind);
    now |= number == counter.site;
    if (now && counter.hit.exchange(true))
      now = counter.from > 0;
    else if (now && counter.hit_file >= 0)
      describe(counter.hit_file, stack, number, call, kind);
  }
  errno = error;
  return now;
}

[[gnu::noinline]] bool asked_to_fail(const char* kind) {
  if (!counter.counts || inside) return false;
  inside = true;
  const bool now = fails(kind);
  inside = false;
  return now;
}

int opened(const char* name) {
  const char* path = variable(name);
  return path[0] == '\0' ? -1 : open(path, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0666);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
using Map = void*(void*, size_t, int, int, int, off_t);
using Start = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
Map* real_mmap = nullptr;
Start* real_pthread_create = nullptr;

[[gnu::constructor]] void begin() {
  inside = true;
  real_mmap = next<Map>("mmap"), real_pthread_create = next<Start>("pthread_create");
  std::array<void*, 4> first;
  backtrace(first.data(), first.size());  // the first call loads a library
  counter.at = atol(variable("FAULTY_ALLOC_AT")), counter.from = atol(variable("FAULTY_ALLOC_FROM"));
  counter.site = strtoull(variable("FAULTY_ALLOC_SITE"), nullptr, 16);
  if (const int depth = atoi(variable("FAULTY_ALLOC_DEPTH")); depth > 0) counter.depth = depth;
  const bool mine = strcmp(program_invocation_short_name, "trireme") == 0 &&
                    strcmp(variable("FAULTY_RANK"), variable("OMPI_COMM_WORLD_RANK")) == 0;
  if (mine) {
    counter.sites_file = opened("FAULTY_ALLOC_SITES"), counter.hit_file = opened("FAULTY_ALLOC_HIT");
    counter.count_file = opened("FAULTY_ALLOC_COUNT");
  }
  counter.counts = mine;
  inside = false;
}

[[gnu::destructor]] void end() {
  if (counter.count_file < 0) return;
  std::array<char, 32> line;
  const int size = snprintf(line.data(), line.size(), "%ld\n", counter.calls.load());
  (void)!write(counter.count_file, line.data(), static_cast<size_t>(size));
}

void* refused() {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

extern "C" {

void* malloc(size_t size) { return asked_to_fail("malloc") ? refused() : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return asked_to_fail("calloc") ? refused() : __libc_calloc(count, size); }
void* realloc(void* before, size_t size) { return asked_to_fail("realloc") ? refused() : __libc_realloc(before, size); }
void* memalign(size_t alignment, size_t size) { return asked_to_fail("memalign") ? refused() : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) {
  return asked_to_fail("aligned_alloc") ? refused() : __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  void* const got = asked_to_fail("posix_memalign") ? nullptr : __libc_memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *memory = got;
  return 0;
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t at) {
  if ((flags & MAP_ANONYMOUS) != 0 && asked_to_fail("mmap")) return errno = ENOMEM, MAP_FAILED;
  if (real_mmap == nullptr) real_mmap = next<Map>("mmap");
  return real_mmap(address, size, protection, flags, file, at);
}
void* mmap64(void* address, size_t size, int protection, int flags, int file, off_t at) {
  return mmap(address, size, protection, flags, file, at);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) {
  if (asked_to_fail("pthread_create")) return EAGAIN;
  if (real_pthread_create == nullptr) real_pthread_create = next<Start>("pthread_create");
  return real_pthread_create(thread, attributes, work, argument);
}

}  // extern "C"
