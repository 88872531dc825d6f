#include "base/openmp_start.h"

#include <omp.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/core_set.h"

namespace trireme {
namespace {

// Rounds of a spinning wait before the thread sleeps: about half a millisecond. Fewer cost an idle machine
// several percent of a step, since most waits are that long. More cost a busy one a multiple of it.
constexpr auto kSpins = "10000";
constexpr auto kPolicy = "OMP_WAIT_POLICY", kSpinCount = "GOMP_SPINCOUNT";
constexpr auto kRestarted = "TRIREME_RESTARTED";  // marks the second start; names what is to be forgotten
constexpr std::array kBindings{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};

std::string hidden(const char* name) { return std::string("TRIREME_") + name; }

void rename_variable(const std::string& from, const std::string& to) {
  const char* value = std::getenv(from.c_str());
  if (value == nullptr) return;
  setenv(to.c_str(), value, 1);
  unsetenv(from.c_str());
}

// A program that was started through the dynamic loader's own name cannot be found by /proc/self/exe.
bool started_by_loader() { return getauxval(AT_BASE) == 0; }

// Gives the calling thread the cores of all of OpenMP's places.
void unbind_this_thread() {
  std::vector<int> all;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> cores(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, cores.data());
    all.insert(all.end(), cores.begin(), cores.end());
  }
  if (const CoreSet set(all); set.count() > 0) set.keep_this_thread();
}

// Makes the environment the user's.
void restore() {
  const char* restarted = std::getenv(kRestarted);
  if (restarted != nullptr && *restarted != '\0') unsetenv(restarted);
  unsetenv(kRestarted);
  for (const char* name : kBindings) rename_variable(hidden(name), name);
}

}  // namespace

void settle_openmp(char** argv) {
  if (std::getenv(kRestarted) != nullptr) return restore();
  const bool bound = omp_get_num_places() > 0, patient = std::getenv(kPolicy) == nullptr && std::getenv(kSpinCount) == nullptr;
  if (bound) unbind_this_thread();
  if (!(bound || patient) || started_by_loader()) return;
  // The file's own name: a process started as /proc/self/exe would be listed as "exe".
  std::array<char, PATH_MAX> program{};
  if (const ssize_t length = readlink("/proc/self/exe", program.data(), program.size() - 1); length <= 0) return;
  if (patient) setenv(kSpinCount, kSpins, 1);
  setenv(kRestarted, patient ? kSpinCount : "", 1);
  for (const char* name : kBindings) rename_variable(name, hidden(name));
  execv(program.data(), argv);
  restore();
}

}  // namespace trireme
