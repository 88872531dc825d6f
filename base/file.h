// Files of the host: opened, read and written at offsets, made durable. Problems are DataErrors that name the file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace trireme {

// An open file. Offsets and counts in bytes; interrupted and partial transfers are carried on until done.
class File {
 public:
  static File open_to_read(const std::string& path);
  static File open_plain(const std::string& path);     // to read; what is no plain file is refused, without waiting for a pipe
  static File open_to_write(const std::string& path);  // an existing file, kept as it is; also readable
  static File create(const std::string& path);         // empties an existing file
  static File standard_input();                        // from where it stands
  ~File();
  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }

  void read_at(void* bytes, int64_t count, int64_t offset) const;  // DataError when the file ends before
  void will_read(int64_t count, int64_t offset) const;             // soon: the disk may begin, and is not waited for
  int64_t read(void* bytes, int64_t count);                        // the next ones, of a pipe, too: `count`, or fewer at its end
  void write_at(const void* bytes, int64_t count, int64_t offset);
  int64_t size() const;
  void sync();  // data and size are on disk afterwards; after a failure the file must not be used
  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

// One process's while it lives. DataError when another has it; file systems that know no locks (flock) give it to all.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);

 private:
  File directory_;
};

// Makes the names in a directory durable.
void sync_directory(const std::string& path);

// Renames a synced file to its final name, replacing what was there, and makes the name durable.
void commit_file(const std::string& from, const std::string& to);

}  // namespace trireme
