#include "base/openmp_cores.h"

#include <omp.h>
#include <sched.h>

#include <vector>

namespace trireme {

void unbind_first_thread() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> cores(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, cores.data());
    for (const int core : cores)
      if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &all);
  }
  if (CPU_COUNT(&all) > 0) sched_setaffinity(0, sizeof all, &all);
}

}  // namespace trireme
