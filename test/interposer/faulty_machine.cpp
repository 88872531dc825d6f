// Injects faults of a machine into one rank; load it before the C library.
//   FAULTY_RANK     the rank whose calls are faulty (OMPI_COMM_WORLD_RANK)
//   FAULTY_MACHINE  bits: what threads compute together is rounded upwards
//                   late_bits: that of about every other time
//                   link: messages of 0.5 to 2 MiB to rank FAULTY_PEER leave 200 ns late for each byte
//                   disk: file systems have 1 MiB free
//                   clock: the time of day is 7 s ahead
//                   host: this rank is on a host of another name
#include <dlfcn.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

bool is_faulty(const char* kind) {
  const auto value = [](const char* name) {
    const char* text = getenv(name);
    return text == nullptr ? "" : text;
  };
  return strcmp(value("FAULTY_MACHINE"), kind) == 0 && strcmp(value("FAULTY_RANK"), value("OMPI_COMM_WORLD_RANK")) == 0;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Work of a team of threads.
struct Team {
  void (*work)(void*);
  void* data;
};

void round_upwards(void* data) {
  const auto* team = static_cast<const Team*>(data);
  const int before = fegetround();
  fesetround(FE_UPWARD);
  team->work(team->data);
  fesetround(before);
}

// About every other number. All bits are mixed, so that those of a loop with many calls are not all of one kind.
bool is_chosen(uint64_t number) {
  number *= 0x9E3779B97F4A7C15u;
  number = (number ^ (number >> 32)) * 0xBF58476D1CE4E5B9u;
  return (number >> 63) != 0;
}

}  // namespace

extern "C" {

// OpenMP's: products and other kernels of the processor, of whatever library.
void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags) {
  static auto* const run = next<void(void (*)(void*), void*, unsigned, unsigned)>("GOMP_parallel");
  static const bool always = is_faulty("bits"), late = is_faulty("late_bits");
  static std::atomic<uint64_t> calls = 0;
  Team team{work, data};
  if (always || (late && is_chosen(++calls))) return run(round_upwards, &team, threads, flags);
  run(work, data, threads, flags);
}

int MPI_Isend(const void* bytes, int count, void* type, int peer, int tag, void* comm, void** request) {
  static auto* const send = next<int(const void*, int, void*, int, int, void*, void**)>("MPI_Isend");
  static const bool slow = is_faulty("link");
  static const int slow_peer = atoi(getenv("FAULTY_PEER") == nullptr ? "-1" : getenv("FAULTY_PEER"));
  if (slow && peer == slow_peer && count >= 512 << 10 && count <= 2 << 20) usleep(static_cast<useconds_t>(count / 5));
  return send(bytes, count, type, peer, tag, comm, request);
}

int statvfs(const char* path, struct statvfs* facts) {
  static auto* const real = next<int(const char*, struct statvfs*)>("statvfs");
  const int result = real(path, facts);
  if (result == 0 && is_faulty("disk")) facts->f_bavail = facts->f_bfree = (1 << 20) / facts->f_frsize;
  return result;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  static auto* const real = next<int(clockid_t, struct timespec*)>("clock_gettime");
  const int result = real(clock, now);
  static const bool ahead = is_faulty("clock");
  if (ahead && clock == CLOCK_REALTIME) now->tv_sec += 7;
  return result;
}

int gethostname(char* name, size_t size) {
  static auto* const real = next<int(char*, size_t)>("gethostname");
  const int result = real(name, size);
  if (result == 0 && size > 16 && is_faulty("host")) strcpy(name, "other-host");
  return result;
}

}  // extern "C"
