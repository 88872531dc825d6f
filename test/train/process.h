// Runs the program as a user does: a child process with its output, exit code and peak memory.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "test/data/scratch.h"

namespace trireme {

struct Ended {
  int code = -1;  // exit code; 128 + n when signal n ended it
  std::string out, err;
  int64_t peak_bytes = 0;   // resident memory, at most
  bool left_alone = false;  // mpirun stayed although its ranks were gone, and was killed
};

// A running `trireme` with these arguments, in `directory`; several ranks of it under mpirun, each with one thread.
class Process {
 public:
  Process(const std::string& directory, const std::vector<std::string>& arguments, int ranks = 1,
          const std::string& program = TRIREME_BUILD "/trireme");
  ~Process();  // kills it if it is still running
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::vector<pid_t> children() const;
  bool running();  // does not wait
  std::string err() const;  // what it has written so far
  Ended wait();

 private:
  Scratch told_;
  std::string out_ = told_ / "out", err_ = told_ / "err";  // files
  pid_t pid_ = -1;
  bool launcher_ = false;
};

// Another program under mpirun.
Ended run_launched(const std::vector<std::string>& command, int ranks);

// Processes of the ranks that mpirun has started in `directory`, by rank.
std::map<int, pid_t> launched_ranks(const std::string& directory);
bool any_alive(const std::map<int, pid_t>& ranks);

Ended run_trireme(const std::string& directory, const std::vector<std::string>& arguments);
Ended run_trireme_line(const std::string& line);  // words between spaces, in a directory of its own

}  // namespace trireme
