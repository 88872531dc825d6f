// Write-once HDF5 files of contiguous datasets, as containers of bytes that everybody's tools can open.
//
// create_hdf5 writes the whole structure at once, with the space of every dataset allocated and nothing filled in, and tells where
// each dataset's bytes lie; File moves the bytes. libhdf5 neither detects damage nor is it safe on hostile files, so a reader keeps
// offsets and digests of its own (a manifest, or the user block in front of the file) and reads with pread; read_hdf5_layout parses
// a file with libhdf5 and is only for files whose every byte has matched a digest, or which this process has just written.
//
// Problems with files are DataErrors that name the file. One dataset per name, all in the root group.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

// Little-endian on disk. bf16 is a custom float type that h5dump and h5py show as numbers.
enum class Hdf5Type : uint8_t { u8, u16, u32, u64, i32, i64, f32, bf16 };

int64_t bytes_of(Hdf5Type type);
const char* name_of(Hdf5Type type);

struct Hdf5Spec {
  std::string name;  // not empty, without '/'
  Hdf5Type type;
  std::vector<int64_t> shape;  // 1 to 8 dims, each >= 0
};

struct Hdf5Dataset {
  std::string name;
  Hdf5Type type;
  std::vector<int64_t> shape;
  int64_t offset;  // of the first byte in the file; 0 when bytes is 0
  int64_t bytes;
  bool operator==(const Hdf5Dataset&) const = default;
};

// Of the root group; strings are UTF-8.
struct Hdf5Attribute {
  std::string name;
  std::variant<int64_t, std::string> value;
  bool operator==(const Hdf5Attribute&) const = default;
};

struct Hdf5Layout {
  std::vector<Hdf5Dataset> datasets;      // by name
  std::vector<Hdf5Attribute> attributes;  // by name
};

// Makes `path` anew (replacing a file of that name) and returns the datasets in the order of `specs`. A dataset of 4 KiB or more
// starts at a multiple of 4 KiB, in big files of up to 1 MiB. `user_block` bytes (0, or a power of two >= 4096, which then bounds
// the alignment) in front belong to the caller, as a hole until written; HDF5 tools skip them. Nothing is synced.
std::vector<Hdf5Dataset> create_hdf5(const std::string& path, const std::vector<Hdf5Spec>& specs,
                                     const std::vector<Hdf5Attribute>& attributes, int64_t user_block = 0);

// The structure as libhdf5 sees it. Refuses links of any kind but hard, groups, datasets that are not contiguous, have external
// storage or a foreign type, and bytes beyond the end of the file.
Hdf5Layout read_hdf5_layout(const std::string& path);

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
