#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/replace_file.h"
#include "checkpoint/digest.h"
#include "checkpoint/io.h"

namespace trireme {

namespace {

// A line for people, and one that no other process has ever written: those of two containers may
// have the same host and process number.
std::string read_holder(int fd) {
  std::array<char, 512> bytes;
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), 0);
  return {bytes.data(), n > 0 ? static_cast<size_t>(n) : 0};
}

bool is_at(const std::string& path, int fd) {
  struct stat open, there;
  return fstat(fd, &open) == 0 && lstat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

std::string describe_self() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return text("process ", getpid(), " on ", host.data(), '\n', random_id(), '\n');
}

}  // namespace

RunLock::RunLock(const std::string& run_directory, double patience) : path_(run_directory + "/lock"), holder_(describe_self()) {
  // A file that its last holder removed meanwhile, maybe with the directory, locks nothing.
  do {
    release();
    std::error_code error;
    std::filesystem::create_directories(run_directory, error);
    if (error) throw unwritable(run_directory, error.value());
    fd_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) throw unwritable(path_);
    lock(run_directory, patience);
  } while (!is_at(path_, fd_));
  // While the file names a former holder, one that lost its lock would take it for its own.
  if (retried([&] { return ftruncate(fd_, 0); }) != 0) {
    const int reason = errno;
    release();
    throw unwritable(path_, reason);
  }
  if (!write_all(fd_, holder_)) {
    holder_.clear();  // disk full: the lock itself still holds, by a file without words
    [[maybe_unused]] const int again = ftruncate(fd_, 0);
  }
  lock(run_directory, 0);  // again: if it was lost meanwhile, another process may have named itself
}

void RunLock::lock(const std::string& run_directory, double patience) {
  constexpr double kLook = 0.1;
  for (double waited = 0; flock(fd_, LOCK_EX | LOCK_NB) != 0; waited += kLook) {
    if (errno != EWOULDBLOCK || waited >= patience) refuse(run_directory, errno);
    std::this_thread::sleep_for(std::chrono::duration<double>(kLook));
  }
}

void RunLock::refuse(const std::string& run_directory, int reason) {
  std::string holder = read_holder(fd_);
  holder.resize(std::min(holder.size(), holder.find('\n')));
  release();
  if (reason == EWOULDBLOCK)
    throw ConfigError(text(run_directory, " is in use by ", holder.empty() ? "another process" : holder,
                           ": wait for it or end it, or choose another train.name"));
  throw ConfigError(text("cannot lock ", path_, ": ", strerror(reason)));
}

// First the lock, then the name: one that was lost may have been another's meanwhile, who has let it go and left its name. It is
// let go again, too.
bool RunLock::held() const {
  if (fd_ < 0 || (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) return false;
  if (is_at(path_, fd_)) {
    const std::string there = read_holder(fd_);
    // One that came too late names itself after the holder.
    if (holder_.empty() ? there.empty() : there.starts_with(holder_)) return true;
  }
  flock(fd_, LOCK_UN);
  return false;
}

void RunLock::check() const {
  if (!held()) throw CheckpointError(text("the lock ", path_, " is no longer ours: nothing is committed or deleted"));
}

void RunLock::release() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace trireme
