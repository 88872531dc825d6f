// Takes the processor away from chosen threads: they run on one core, at the lowest priority, beside
// endless loops on that core.
#pragma once

#include <sys/types.h>

#include <vector>

namespace trireme {

class Starvation {
 public:
  explicit Starvation(int loops = 2);  // starts the loops on the first core that this process may use
  ~Starvation();                       // ends them and gives the threads back what they had, as far as the kernel allows
  Starvation(const Starvation&) = delete;
  Starvation& operator=(const Starvation&) = delete;

  void take(pid_t thread);  // the first thread of a process has the process's id
  void end();

 private:
  std::vector<pid_t> loops_, taken_;
};

// The lowest priority on that core, for the calling thread.
void starve_this_thread();

}  // namespace trireme
