// Io: every call by which a checkpoint touches the disk, as replaceable functions with the meaning of the system's; tests make each
// of them fail, fall short or end the process. IoFile: an open file over it, carrying on interrupted and partial transfers.
#pragma once

#include <sys/types.h>

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

// Bytes on disk are not what was saved, or cannot be read: an older checkpoint may do.
struct DamagedCheckpoint : CheckpointError {
  using CheckpointError::CheckpointError;
};

struct Io {
  Io();  // the system's

  std::function<int(const char* path, int flags, mode_t mode)> open;
  std::function<ssize_t(int fd, void* bytes, size_t count, off_t offset)> pread;
  std::function<ssize_t(int fd, const void* bytes, size_t count, off_t offset)> pwrite;
  std::function<int(int fd, int mode, off_t offset, off_t count)> fallocate;
  std::function<int(int fd)> fsync;
  std::function<int(int fd)> close;
  std::function<int(const char* from, const char* to)> rename;
  std::function<int(const char* path, mode_t mode)> mkdir;
  std::function<int(const char* path)> unlink;
  std::function<int(const char* path)> rmdir;
  std::function<std::vector<Hdf5Dataset>(const std::string& path, const std::vector<Hdf5Spec>&, const std::vector<Hdf5Attribute>&)>
      create_hdf5;
};

// Page-aligned memory of no value yet, for what a disk reads or writes itself.
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

// Reading throws DamagedCheckpoint, writing CheckpointError; both name the file and the system's reason.
class IoFile {
 public:
  // Refuses whatever is not a plain file: links, directories, pipes.
  static IoFile open_to_read(const Io& io, const std::string& path);
  static IoFile open_to_write(const Io& io, const std::string& path);  // an existing file, kept as it is
  static IoFile create(const Io& io, const std::string& path);         // must not exist yet
  ~IoFile();
  IoFile(IoFile&& other) noexcept
      : io_(other.io_),
        path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        direct_(std::exchange(other.direct_, -1)) {}
  IoFile& operator=(IoFile&&) = delete;

  // From now on, where the file system allows that, what is large and begins at a multiple of 4096 moves between memory and disk
  // itself (O_DIRECT): without a copy by the processor, and past the system's cache. All else goes through the cache as before.
  void bypass_cache();
  bool bypasses_cache() const { return direct_ >= 0; }

  // Of any number of threads at once, and of any memory.
  void read_at(void* bytes, int64_t count, int64_t offset) const;
  void write_at(const void* bytes, int64_t count, int64_t offset);
  int64_t size() const;
  // Has the disk set aside blocks for what the file is long, where the file system can and wants to (of no room the writes are to
  // tell: file systems that compress may ask for more than it takes): several threads' writes go to the disk side by side. (Those
  // that allocate blocks wait for each other in ext4 and XFS.)
  void allocate();
  void sync();               // after a failure the file's contents are unknown: it must be given up
  void close();              // and hear of late errors
  void drop_cached() const;  // what was synced is read from the disk next, if the system follows the advice
  const std::string& path() const { return path_; }

 private:
  IoFile(const Io& io, std::string path, int fd) : io_(&io), path_(std::move(path)), fd_(fd) {}
  // The bytes that were moved past the cache: the first ones. What the system refuses that way is left to the cache, and to what it
  // says then.
  int64_t read_directly(std::byte* bytes, int64_t count, int64_t offset) const;
  int64_t write_directly(const std::byte* bytes, int64_t count, int64_t offset);
  bool goes_directly(int64_t count, int64_t offset) const;

  const Io* io_;
  std::string path_;
  int fd_ = -1, direct_ = -1;
};

// CheckpointError with the paths and the system's reason when they fail.
void make_directory(const Io& io, const std::string& path);  // which may be there
void rename_path(const Io& io, const std::string& from, const std::string& to);
void sync_directory(const Io& io, const std::string& path);
// Removes a directory of plain files, `first` before all others; nothing happens when it does not exist.
void remove_directory(const Io& io, const std::string& path, const std::string& first);

bool path_exists(const std::string& path);

}  // namespace trireme
