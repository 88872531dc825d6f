// Files: open, read and write at offsets, make durable. Every failure is a DataError that names the
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

// An open file. Offsets and counts are in bytes. Interrupted and partial transfers are retried
// until complete.
class File {
 public:
  // Refuses anything but a regular file, and never blocks on a pipe.
  static File open_to_read(const std::string& path);
  static File open_to_write(const std::string& path);  // keeps the contents of an existing file; also readable
  static File create(const std::string& path);         // empties an existing file
  static File standard_input();                        // from its current position
  ~File();
  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }

  void read_at(void* bytes, int64_t count, int64_t offset) const;  // DataError if the file is too short
  void will_read(int64_t count, int64_t offset) const;             // prefetch hint; returns at once
  int64_t read(void* bytes, int64_t count);                        // the next `count` bytes, also of a pipe; fewer at its end
  void write_at(const void* bytes, int64_t count, int64_t offset);
  int64_t size() const;
  void sync();  // makes data and size durable; do not use the file after a failure
  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  friend class DirectoryLock;
  std::string path_;
  int fd_ = -1;
};

// An exclusive lock on a directory, held for the object's lifetime. Throws DataError if another
// process holds it. On file systems without flock, every process gets the lock.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);

 private:
  File directory_;
};

// All bytes of a regular file. More than `most`, by its size or while it is read, is a DataError:
// "too many for WHAT". Files that grow, or report no size as those of /proc, are read to their end.
std::string read_file(const std::string& path, int64_t most, std::string_view what);
// "" if it cannot be read or is larger than `most`.
std::string text_of_file(const std::string& path, int64_t most = 16 << 20);

// Makes the entries of a directory durable.
void sync_directory(const std::string& path);

// Renames a synced file to its final name, replacing any old file, and makes the name durable.
void commit_file(const std::string& from, const std::string& to);

}  // namespace trireme
