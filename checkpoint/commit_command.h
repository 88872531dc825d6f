// Runs the user's command for each checkpoint committed to disk, for example to copy it to an
// object store.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trireme {

// Runs one command at a time, by /bin/sh, with TRIREME_CHECKPOINT (the step's absolute directory)
// and TRIREME_STEP in its environment, and appends its output to `log`. The file `done` keeps the
// last step for which it succeeded. Of the steps that arrive while it runs, it gets only the
// newest.
class CommitCommand {
 public:
  CommitCommand(std::string command, std::string log, std::string done);
  ~CommitCommand();  // a running command continues by itself
  CommitCommand(const CommitCommand&) = delete;
  CommitCommand& operator=(const CommitCommand&) = delete;

  void start(int64_t step, const std::string& directory);
  int64_t last_done() const;  // of earlier processes too; -1: none
  bool needs(int64_t step);   // true if it runs for this step or is yet to
  void finish();              // waits until no step is left
  std::vector<std::string> take_warnings();

 private:
  struct Job {
    int64_t step;
    std::string directory;
  };
  void work();
  std::string run(const Job& job);  // returns the problem, or ""

  const std::string command_, log_, done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> at_work_, next_;
  std::vector<std::string> warnings_;
  bool closing_ = false;
  std::thread thread_;  // last: starts once all other members exist
};

}  // namespace trireme
