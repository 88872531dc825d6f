// RunLock: the right to write into a run directory, held by one process. A lock of the system on RUN/lock: it ends with the
// process, however that dies. The file names its holder.
#pragma once

#include <string>

namespace trireme {

class RunLock {
 public:
  // ConfigError that names the holder when another process has it.
  explicit RunLock(const std::string& run_directory);
  ~RunLock() { release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Throws CheckpointError unless the lock is still ours: asked before every rename and unlink that others can see, so that a
  // process whose lock was lost (file removed, lock server restarted) neither commits nor deletes.
  void check() const;
  void release() noexcept;

 private:
  std::string path_, holder_;
  int fd_ = -1;
};

}  // namespace trireme
