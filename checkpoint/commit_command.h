// The user's command for each checkpoint that is committed to disk: to copy it to an object store, say.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trireme {

// One runs at a time, by /bin/sh, with TRIREME_CHECKPOINT (the step's directory, absolute) and TRIREME_STEP in its environment;
// what it prints is appended to `log`. The last step for which it succeeded is kept in `done`. Of steps that come while it is at
// work, it is given the newest next, and the others never.
class CommitCommand {
 public:
  CommitCommand(std::string command, std::string log, std::string done);
  ~CommitCommand();  // a command at work goes on by itself
  CommitCommand(const CommitCommand&) = delete;
  CommitCommand& operator=(const CommitCommand&) = delete;

  void start(int64_t step, const std::string& directory);
  int64_t last_done() const;  // also by an earlier process; -1: none
  bool needs(int64_t step);   // it is at work on this step, or to be given it
  void finish();              // waits until nothing is left to do
  std::vector<std::string> take_warnings();

 private:
  struct Job {
    int64_t step;
    std::string directory;
  };
  void work();
  std::string run(const Job& job);  // what went wrong; "" nothing

  const std::string command_, log_, done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> at_work_, next_;
  std::vector<std::string> warnings_;
  bool closing_ = false;
  std::thread thread_;  // last: it starts when all else stands
};

}  // namespace trireme
