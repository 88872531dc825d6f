#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/replace_file.h"

namespace trireme {

namespace {

std::string read_holder(int fd) {
  std::array<char, 512> bytes;
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), 0);
  std::string holder(bytes.data(), n > 0 ? static_cast<size_t>(n) : 0);
  return holder.substr(0, holder.find('\n'));
}

std::string describe_self() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return text("process ", getpid(), " on ", host.data());
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
    const std::string holder = read_holder(fd_);
    close(std::exchange(fd_, -1));
    if (reason == EWOULDBLOCK)
      throw ConfigError(text(run_directory, " is in use by ", holder.empty() ? "another process" : holder,
                             ": wait for it or end it, or choose another train.name"));
    throw ConfigError(text("cannot lock ", path_, ": ", strerror(reason)));
  }
  const std::string line = holder_ + "\n";
  const bool written = ftruncate(fd_, 0) == 0 && pwrite(fd_, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
  if (!written) holder_.clear();  // disk full: the lock itself still holds
}

void RunLock::check() const {
  struct stat ours, there;
  const bool held = fd_ >= 0 && fstat(fd_, &ours) == 0 && lstat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
                    ours.st_dev == there.st_dev && (holder_.empty() || read_holder(fd_) == holder_);
  if (!held) throw CheckpointError(text("the lock ", path_, " is no longer ours: nothing is committed or deleted"));
}

void RunLock::release() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace trireme
