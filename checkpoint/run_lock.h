// RunLock: the right to write to a run directory, held by one process. It is a system lock on
// RUN/lock, so it ends with the process, however that dies. The file names its holder.
#pragma once

#include <string>

namespace trireme {

// Seconds in which a run that has just ended lets go of its lock: its launcher may return while a killed rank still lives.
inline constexpr double kLockPatience = 10;

class RunLock {
 public:
  // Throws ConfigError, naming the holder, if another process still has it after so many seconds.
  explicit RunLock(const std::string& run_directory, double patience = 0);
  ~RunLock() { release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Throws CheckpointError unless the lock is still held. Called before every rename and unlink
  // that others can see: a process that lost its lock (file removed, lock server restarted) must
  // not commit or delete.
  void check() const;
  bool held() const;
  void release() noexcept;

 private:
  void lock(const std::string& run_directory, double patience);
  [[noreturn]] void refuse(const std::string& run_directory, int reason);
  std::string path_, holder_;
  int fd_ = -1;
};

}  // namespace trireme
