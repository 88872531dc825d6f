// FreshRun: takes a run directory away again if the start that made it fails before its first step.
#pragma once

#include <string>

namespace trireme {

class FreshRun {
 public:
  // Before anything of the run is written.
  explicit FreshRun(std::string directory);

  // After a failed start: removes the directory if this start made it and it holds nothing but a start's own files. Returns whether
  // it is gone. `locked`: this process holds the run's lock; otherwise nothing is removed while another process does.
  bool remove(bool locked) const;

 private:
  std::string directory_;
  bool absent_;
};

}  // namespace trireme
