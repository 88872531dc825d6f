// Runs the user's command for each checkpoint committed to disk, for example to copy it to an
// object store.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trireme {

// Runs one command at a time, by /bin/sh, with TRIREME_CHECKPOINT (the step's absolute directory),
// TRIREME_STEP and TRIREME_RUN (the run's absolute directory) in its environment, and appends its
// output to `log`. The file `done` keeps the last step for which it succeeded, and its save. Of the
// steps that arrive while it runs, it gets only the newest.
//
// The command is the leader of a process group. The group is ended if it takes longer than
// `timeout` seconds (0: any time): by SIGTERM, then by SIGKILL. It also ends, by SIGKILL, when this
// process ends, however that dies.
class CommitCommand {
 public:
  struct Files {
    std::string log, done;
  };
  CommitCommand(std::string command, Files files, double timeout);
  ~CommitCommand();  // ends a running command
  CommitCommand(const CommitCommand&) = delete;
  CommitCommand& operator=(const CommitCommand&) = delete;

  // A checkpoint, of this save, in a directory.
  struct Job {
    int64_t step;
    std::string save, directory;
  };
  void start(Job job);
  // Whether it has succeeded for this save or a later step, also in an earlier process.
  bool has_done(int64_t step, const std::string& save) const;
  // True if it runs for this step or is yet to.
  bool needs(int64_t step);
  // Waits until no step is left. Once `hurry` returns true, at most 20 seconds more; then the
  // command is ended, and the next start of the run gives it the newest checkpoint.
  void finish(const std::function<bool()>& hurry);
  std::vector<std::string> take_warnings();

 private:
  void work();
  std::string run(const Job& job);  // returns the problem, or ""
  pid_t spawn(const std::string& script, pid_t group, int input, const std::vector<std::string>& variables);
  std::string wait_for(pid_t group);
  bool closing_within(std::chrono::milliseconds time);

  const std::string command_, log_, done_;
  const double timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> at_work_, next_;
  std::vector<std::string> warnings_;
  bool closing_ = false;
  std::thread thread_;  // last: starts once all other members exist
};

}  // namespace trireme
