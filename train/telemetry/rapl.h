// Rapl: the energy of this machine's processors and their memory, from the counters of Linux's powercap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// The counters below `root`: packages, and memory where it is a domain of its own (it is not in its package). Cores and graphics
// are in their package; `psys`, the platform's, has the packages in it; intel-rapl-mmio has the same packages again. None of these
// is counted. For one thread; call joules() at least once a minute: a counter begins again after some.
class Rapl {
 public:
  explicit Rapl(const std::string& root);

  bool any() const { return !domains_.empty(); }  // a counter that this process may read; most systems let only root
  // Since the construction. What cannot be read just now is added once it can be.
  double joules();

 private:
  struct Domain {
    std::string file;
    double last, range;  // microjoules; the range is where the counter begins again, 0: unknown
  };
  std::vector<Domain> domains_;
  double microjoules_ = 0;
};

}  // namespace trireme
