#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/replace_file.h"
#include "checkpoint/digest.h"

namespace trireme {

namespace {

// A line for people, and one that no other process has ever written: those of two containers may
// have the same host and process number.
std::string read_holder(int fd) {
  std::array<char, 512> bytes;
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), 0);
  return {bytes.data(), n > 0 ? static_cast<size_t>(n) : 0};
}

std::string describe_self() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return text("process ", getpid(), " on ", host.data(), '\n', random_id(), '\n');
}

}  // namespace

RunLock::RunLock(const std::string& run_directory) : path_(run_directory + "/lock"), holder_(describe_self()) {
  std::error_code error;
  std::filesystem::create_directories(run_directory, error);
  if (error) throw unwritable(run_directory, error.value());
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) throw unwritable(path_);
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    std::string holder = read_holder(fd_);
    holder.resize(std::min(holder.size(), holder.find('\n')));
    close(std::exchange(fd_, -1));
    if (reason == EWOULDBLOCK)
      throw ConfigError(text(run_directory, " is in use by ", holder.empty() ? "another process" : holder,
                             ": wait for it or end it, or choose another train.name"));
    throw ConfigError(text("cannot lock ", path_, ": ", strerror(reason)));
  }
  // While the file names a former holder, one that lost its lock would take it for its own.
  int emptied = -1;
  do emptied = ftruncate(fd_, 0);
  while (emptied != 0 && errno == EINTR);
  if (emptied != 0) {
    const int reason = errno;
    close(std::exchange(fd_, -1));
    throw unwritable(path_, reason);
  }
  const bool written = pwrite(fd_, holder_.data(), holder_.size(), 0) == static_cast<ssize_t>(holder_.size());
  if (written) return;
  holder_.clear();  // disk full: the lock itself still holds, by a file without words
  [[maybe_unused]] const int again = ftruncate(fd_, 0);
}

bool RunLock::held() const {
  struct stat ours, there;
  return fd_ >= 0 && fstat(fd_, &ours) == 0 && lstat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev && read_holder(fd_) == holder_;
}

void RunLock::check() const {
  if (!held()) throw CheckpointError(text("the lock ", path_, " is no longer ours: nothing is committed or deleted"));
}

void RunLock::release() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace trireme
