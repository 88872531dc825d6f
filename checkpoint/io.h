// Io: every disk operation of checkpoints, as replaceable functions with the semantics of the
// system calls. Tests make each of them fail, fall short or end the process. IoFile: an open file
// on top of Io that retries interrupted and partial transfers.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/shard/hdf5_file.h"

namespace trireme {

// Bytes on disk differ from what was saved, or cannot be read. An older checkpoint may still be
// valid.
struct DamagedCheckpoint : CheckpointError {
  using CheckpointError::CheckpointError;
};

struct Io {
  Io();  // uses the system calls

  std::function<int(const char* path, int flags, mode_t mode)> open;
  std::function<int(int directory, const char* name, int flags)> openat;  // of what exists
  std::function<ssize_t(int fd, void* bytes, size_t count, off_t offset)> pread;
  std::function<ssize_t(int fd, const void* bytes, size_t count, off_t offset)> pwrite;
  std::function<int(int fd, int mode, off_t offset, off_t count)> fallocate;
  std::function<int(int fd, off_t bytes)> ftruncate;
  std::function<int(int fd)> fsync;
  std::function<int(int fd)> close;
  std::function<int(const char* from, const char* to)> rename;
  std::function<int(const char* path, mode_t mode)> mkdir;
  std::function<int(int directory, const char* name, int flags)> unlinkat;  // the only call that deletes
  std::function<int(int directory, const char* name, struct stat* facts, int flags)> fstatat;
  std::function<int(int directory, std::vector<std::string>& names)> list;  // entries, without . and ..; -1 and errno
  std::function<std::vector<Hdf5Dataset>(const std::string& path, const std::vector<Hdf5Spec>&, const std::vector<Hdf5Attribute>&)>
      create_hdf5;
};

// Page-aligned, uninitialised memory for direct I/O.
class DiskMemory {
 public:
  explicit DiskMemory(int64_t bytes);
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// Reading throws DamagedCheckpoint, writing CheckpointError; both name the file and the system's
// reason.
class IoFile {
 public:
  // Refuses links, directories and pipes.
  static IoFile open_to_read(const Io& io, const std::string& path);
  static IoFile open_to_write(const Io& io, const std::string& path);  // keeps the contents of an existing file
  static IoFile create(const Io& io, const std::string& path);         // fails if it exists
  ~IoFile();
  IoFile(IoFile&& other) noexcept
      : io_(other.io_),
        path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        direct_(std::exchange(other.direct_, -1)) {}
  IoFile& operator=(IoFile&&) = delete;

  // Uses direct I/O (O_DIRECT) from now on, if the file system supports it, for large transfers at
  // multiples of 4096 bytes. They skip the page cache and its copy. All other transfers use the
  // cache as before.
  void bypass_cache();
  bool bypasses_cache() const { return direct_ >= 0; }

  // Thread-safe; accepts memory of any alignment.
  void read_at(void* bytes, int64_t count, int64_t offset) const;
  void write_at(const void* bytes, int64_t count, int64_t offset);
  int64_t size() const;
  // Reserves blocks for the file's whole length if the file system can, so that several threads
  // write in parallel. (Writes that allocate blocks serialise in ext4 and XFS.) A lack of space is
  // left to the writes to report: compressing file systems may reserve more than they use.
  void allocate();
  void cut(int64_t bytes);   // to this length, if it is longer
  void sync();               // after a failure the contents are unknown: discard the file
  void close();              // reports late errors
  void drop_cached() const;  // hint: the next read of synced data comes from the disk
  const std::string& path() const { return path_; }

 private:
  IoFile(const Io& io, std::string path, int fd) : io_(&io), path_(std::move(path)), fd_(fd) {}
  // Returns how many leading bytes bypassed the cache. Whatever the system refuses is left to a
  // cached transfer, which reports the error.
  int64_t read_directly(std::byte* bytes, int64_t count, int64_t offset) const;
  int64_t write_directly(const std::byte* bytes, int64_t count, int64_t offset);
  bool goes_directly(int64_t count, int64_t offset) const;

  const Io* io_;
  std::string path_;
  int fd_ = -1, direct_ = -1;
};

// Repeats a system call that a signal has interrupted.
template <class Call>
auto retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// These throw CheckpointError with the paths and the system's reason.
void make_directory(const Io& io, const std::string& path);  // may exist already
void rename_path(const Io& io, const std::string& from, const std::string& to);
void sync_directory(const Io& io, const std::string& path);
// Makes the name of a directory durable, and those of its parents, which may be new as well.
// Returns why one is not, or "".
std::string sync_parents(const Io& io, const std::string& path);
// Names of the entries of a directory, sorted; empty if it does not exist.
std::vector<std::string> names_in(const Io& io, const std::string& directory);

bool path_exists(const Io& io, const std::string& path);  // also a link that leads nowhere

}  // namespace trireme
