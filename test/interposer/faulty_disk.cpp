// Injects faults into disk calls; load it before the C library. It counts every call of one rank's
// process that changes something below a "/checkpoints/", and makes one of them fail.
//   FAULTY_RANK   the rank whose calls count (OMPI_COMM_WORLD_RANK)
//   FAULTY_AT     the number of the call, from 1
//   FAULTY_KIND   before, after: the process dies; short: half is written; eio, enospc, eintr: the
//                 call fails; lose: unsynced data is lost, and the process dies; count: nothing;
//                 slow: every read takes FAULTY_MS more, or else a quarter of a second; of all
//                 ranks without FAULTY_RANK
//   FAULTY_BELOW  the part of a path that counts, in place of "/checkpoints/"
//   FAULTY_COUNT  a file for the number of calls
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

std::string whole_path(const std::string& path) { return std::filesystem::absolute(path).lexically_normal(); }

bool below_checkpoints(const std::string& path) {
  static const std::string below = variable("FAULTY_BELOW").empty() ? "/checkpoints/" : variable("FAULTY_BELOW");
  return path.find(below) != std::string::npos;
}

std::string path_of(int fd) {
  char path[4096];
  const ssize_t n = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "";
}

class Disk {
 public:
  Disk()
      : counts_(variable("FAULTY_RANK") == variable("OMPI_COMM_WORLD_RANK") && !variable("FAULTY_KIND").empty()),
        kind_(variable("FAULTY_KIND")),
        at_(atol(variable("FAULTY_AT").c_str())) {}
  ~Disk() {
    if (!counts_ || variable("FAULTY_COUNT").empty()) return;
    if (FILE* file = fopen(variable("FAULTY_COUNT").c_str(), "w")) fprintf(file, "%ld", calls_), fclose(file);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  enum class Turn { normal, fail, half, die_after };
  // Turn of a call that changes `path`. With Turn::fail, errno is set.
  Turn turn(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (!counts_ || !below_checkpoints(path) || ++calls_ != at_) return Turn::normal;
    if (kind_ == "before") die();
    if (kind_ == "lose") lose(), die();
    if (kind_ == "after") return Turn::die_after;
    if (kind_ == "short") return Turn::half;
    errno = kind_ == "eio" ? EIO : kind_ == "enospc" ? ENOSPC : EINTR;
    return kind_ == "count" ? Turn::normal : Turn::fail;
  }
  void wrote(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (counts_ && below_checkpoints(path)) unsynced_.insert(path);
  }
  void synced(const std::string& path) {
    const std::lock_guard lock(mutex_);
    unsynced_.erase(path);
    std::erase_if(renames_, [&](const auto& r) { return r.second.substr(0, r.second.rfind('/')) == path; });
  }
  // Renames as they were given; synced files are identified by their whole path.
  void renamed(const std::string& given_from, const std::string& given_to) {
    const std::lock_guard lock(mutex_);
    const std::string from = whole_path(given_from), to = whole_path(given_to);
    if (!counts_ || !below_checkpoints(to)) return;
    if (unsynced_.erase(from) > 0) unsynced_.insert(to);
    renames_.emplace_back(from, to);
  }
  [[noreturn]] static void die() {
    raise(SIGKILL);
    _exit(1);
  }

 private:
  // Undoes renames, newest first; contents become zeros of half their size.
  void lose() {
    auto* const move = next<int(const char*, const char*)>("rename");
    for (; !renames_.empty(); renames_.pop_back()) {
      const auto& [from, to] = renames_.back();
      if (move(to.c_str(), from.c_str()) == 0 && unsynced_.erase(to) > 0) unsynced_.insert(from);
    }
    for (const std::string& path : unsynced_) {
      struct stat facts;
      if (stat(path.c_str(), &facts) != 0 || truncate(path.c_str(), 0) != 0) continue;
      (void)!truncate(path.c_str(), facts.st_size / 2);
    }
  }

  std::mutex mutex_;
  bool counts_;
  std::string kind_;
  long at_, calls_ = 0;
  std::set<std::string> unsynced_;
  std::vector<std::pair<std::string, std::string>> renames_;
};

Disk& disk() {
  static Disk disk;
  return disk;
}

using Turn = Disk::Turn;

// A call without a size, which cannot be done by half.
template <class Call>
int whole(const std::string& path, Call call) {
  const Turn turn = disk().turn(path);
  if (turn == Turn::fail) return -1;
  const int result = call();
  if (turn == Turn::die_after) Disk::die();
  return result;
}

template <class Call>
ssize_t sized(int fd, size_t count, Call call) {
  const std::string path = path_of(fd);
  const Turn turn = below_checkpoints(path) ? disk().turn(path) : Turn::normal;
  if (turn == Turn::fail) return -1;
  const ssize_t result = call(turn == Turn::half ? std::max<size_t>(1, count / 2) : count);
  disk().wrote(path);
  if (turn == Turn::die_after) Disk::die();
  return result;
}

void wait_if_slow(int fd) {
  static const std::string rank = variable("FAULTY_RANK"), ms = variable("FAULTY_MS");
  static const bool slow = variable("FAULTY_KIND") == "slow" && (rank.empty() || rank == variable("OMPI_COMM_WORLD_RANK"));
  static const auto micros = static_cast<useconds_t>(ms.empty() ? 250000 : 1000 * atol(ms.c_str()));
  if (slow && below_checkpoints(path_of(fd))) usleep(micros);
}

int sync_file(int fd, const char* name) {
  const std::string path = path_of(fd);
  if (!below_checkpoints(path + "/")) return next<int(int)>(name)(fd);
  return whole(path + "/", [&] {
    disk().synced(path);
    return next<int(int)>(name)(fd);
  });
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* bytes, size_t count) {
  static auto* const read_now = next<ssize_t(int, void*, size_t)>("read");
  wait_if_slow(fd);
  return read_now(fd, bytes, count);
}
ssize_t pread(int fd, void* bytes, size_t count, off_t at) {
  static auto* const read_now = next<ssize_t(int, void*, size_t, off_t)>("pread");
  wait_if_slow(fd);
  return read_now(fd, bytes, count, at);
}
ssize_t pread64(int fd, void* bytes, size_t count, off_t at) {
  return pread(fd, bytes, count, at);
}
ssize_t write(int fd, const void* bytes, size_t count) {
  return sized(fd, count, [&](size_t n) { return next<ssize_t(int, const void*, size_t)>("write")(fd, bytes, n); });
}
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  return sized(fd, count, [&](size_t n) { return next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, n, at); });
}
ssize_t pwrite64(int fd, const void* bytes, size_t count, off_t at) { return pwrite(fd, bytes, count, at); }
int fallocate(int fd, int mode, off_t at, off_t count) {
  return whole(path_of(fd), [&] { return next<int(int, int, off_t, off_t)>("fallocate")(fd, mode, at, count); });
}
int fallocate64(int fd, int mode, off_t at, off_t count) { return fallocate(fd, mode, at, count); }
int fsync(int fd) { return sync_file(fd, "fsync"); }
int fdatasync(int fd) { return sync_file(fd, "fdatasync"); }
int rename(const char* from, const char* to) {
  return whole(to, [&] {
    const int result = next<int(const char*, const char*)>("rename")(from, to);
    if (result == 0) disk().renamed(from, to);
    return result;
  });
}
int unlinkat(int directory, const char* name, int flags) {
  const std::string path = directory == AT_FDCWD || name[0] == '/' ? std::string(name) : path_of(directory) + "/" + name;
  return whole(path, [&] { return next<int(int, const char*, int)>("unlinkat")(directory, name, flags); });
}
int unlink(const char* path) {
  return whole(path, [&] { return next<int(const char*)>("unlink")(path); });
}
int rmdir(const char* path) {
  return whole(path, [&] { return next<int(const char*)>("rmdir")(path); });
}
int mkdir(const char* path, mode_t mode) {
  return whole(path, [&] { return next<int(const char*, mode_t)>("mkdir")(path, mode); });
}

}  // extern "C"
