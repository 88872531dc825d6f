#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/error.h"

namespace trireme {
namespace {

[[noreturn]] void fail_with(const std::string& path, const std::string& what) { throw DataError(path + ": " + what); }

[[noreturn]] void fail_errno(const std::string& path, const std::string& what) {
  fail_with(path, what + ": " + std::strerror(errno));
}

}  // namespace

File File::open_to_read(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) fail_errno(path, "cannot be opened");
  File file(path, fd);
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) fail_with(path, "is not a regular file");
  return file;
}

std::string read_file(const std::string& path, int64_t most, std::string_view what) {
  constexpr int64_t kPart = 1 << 20;
  File file = File::open_to_read(path);
  const int64_t size = file.size();
  const auto refuse = [&](const char* than, int64_t count) {
    fail_with(path, text(than, count, " bytes are too many for ", what, ", at most ", most));
  };
  if (size > most) refuse("", size);
  std::string bytes;
  for (int64_t now = size + 1; now > 0;) {  // one byte more than its size: the end is then seen by the first read
    const auto before = std::ssize(bytes);
    bytes.resize(static_cast<size_t>(before + now));
    const int64_t got = file.read(bytes.data() + before, now);
    bytes.resize(static_cast<size_t>(before + got));
    if (std::ssize(bytes) > most) refuse("more than ", most);
    now = got < now ? 0 : std::min(kPart, most + 1 - std::ssize(bytes));
  }
  return bytes;
}

std::string text_of_file(const std::string& path, int64_t most) try {
  return read_file(path, most, "a small file");
} catch (const DataError&) {
  return "";
}

File File::standard_input() {
  const int fd = dup(STDIN_FILENO);
  if (fd < 0) fail_errno("standard input", "cannot be read");
  return File("standard input", fd);
}

DirectoryLock::DirectoryLock(const std::string& directory)
    : directory_(directory, open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (directory_.descriptor() < 0) fail_errno(directory, "cannot be opened as a directory");
  if (flock(directory_.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail_with(directory, "another process is building shards there: wait for it, or choose another directory");
}

File File::open_to_write(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail_errno(path, "cannot be opened for writing");
  return File(path, fd);
}

File File::create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail_errno(path, "cannot be created");
  return File(path, fd);
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

void File::read_at(void* bytes, int64_t count, int64_t offset) const {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t n = pread(fd_, to, static_cast<size_t>(count), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path_, text("reading ", count, " bytes at ", offset));
    if (n == 0) fail_with(path_, text("is truncated: ", count, " bytes at ", offset, " are missing"));
    to += n;
    count -= n;
    offset += n;
  }
}

void File::will_read(int64_t count, int64_t offset) const {
  posix_fadvise(fd_, offset, count, POSIX_FADV_WILLNEED);  // a hint: a file system may ignore it
}

int64_t File::read(void* bytes, int64_t count) {
  int64_t done = 0;
  while (done < count) {
    const ssize_t n = ::read(fd_, static_cast<char*>(bytes) + done, static_cast<size_t>(count - done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path_, "cannot be read");
    if (n == 0) break;
    done += n;
  }
  return done;
}

void File::write_at(const void* bytes, int64_t count, int64_t offset) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = pwrite(fd_, from, static_cast<size_t>(count), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_errno(path_, text("writing ", count, " bytes at ", offset));
    from += n;
    count -= n;
    offset += n;
  }
}

int64_t File::size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) fail_errno(path_, "its size cannot be read");
  if (!S_ISREG(info.st_mode)) fail_with(path_, "is not a regular file");
  return info.st_size;
}

void File::sync() {
  if (fsync(fd_) != 0) fail_errno(path_, "fsync");
}

void sync_directory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno(path, "cannot be opened as a directory");
  const int status = fsync(fd);
  const int reason = errno;
  close(fd);
  errno = reason;
  if (status != 0) fail_errno(path, "fsync");
}

void commit_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail_errno(from, "cannot be renamed to " + to);
  const std::string directory = std::filesystem::path(to).parent_path().string();
  sync_directory(directory.empty() ? "." : directory);
}

}  // namespace trireme
