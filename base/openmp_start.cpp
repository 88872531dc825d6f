#include "base/openmp_start.h"

#include <omp.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/core_set.h"
#include "base/file.h"
#include "base/process_state.h"

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

bool names_cores() { return std::getenv("OMP_PLACES") != nullptr || std::getenv("GOMP_CPU_AFFINITY") != nullptr; }

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

// mpirun's options are variables of its ranks. The first ones choose cores; of these, the second only say which node gets which
// rank, unless they also say how many cores (PE=).
constexpr std::array<std::string_view, 3> kOfCores{"OMPI_MCA_hwloc_base_", "OMPI_MCA_rmaps_", "OMPI_MCA_orte_rankfile="};
constexpr std::array<std::string_view, 9> kOfNodes{"OMPI_MCA_rmaps_base_oversubscribe=",
                                                   "OMPI_MCA_rmaps_base_no_oversubscribe=",
                                                   "OMPI_MCA_rmaps_base_ranking_policy=",
                                                   "OMPI_MCA_rmaps_base_mapping_policy=node",
                                                   "OMPI_MCA_rmaps_base_mapping_policy=slot",
                                                   "OMPI_MCA_rmaps_base_mapping_policy=ppr:",
                                                   "OMPI_MCA_rmaps_base_bynode=",
                                                   "OMPI_MCA_rmaps_base_byslot=",
                                                   "OMPI_MCA_rmaps_ppr_"};

bool chooses_cores(std::string_view variable) {
  const auto begins = [&](std::string_view beginning) { return variable.starts_with(beginning); };
  const bool counts_cores = variable.find("PE=") != std::string_view::npos || variable.find("pe=") != std::string_view::npos;
  return std::ranges::any_of(kOfCores, begins) && (counts_cores || std::ranges::none_of(kOfNodes, begins));
}

bool bound_by_default_of_mpirun() {
  const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (ranks == nullptr || (std::string_view(ranks) != "1" && std::string_view(ranks) != "2")) return false;
  if (std::getenv("OMPI_MCA_orte_bound_at_launch") == nullptr) return false;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (chooses_cores(*variable)) return false;
  return true;
}

// True of a rank and of what a rank was started through, but not of mpirun, or its part on this node.
bool knows_its_rank(pid_t process) {
  const std::string environment = '\0' + text_of_file("/proc/" + std::to_string(process) + "/environ");
  return environment.find(std::string("\0OMPI_COMM_WORLD_RANK=", 22)) != std::string::npos;
}

void take_cores_of_launcher() {
  pid_t process = getppid();
  while (process > 0 && knows_its_rank(process)) process = state_of_process(process).parent;
  if (const CoreSet its = CoreSet::of_process(process); process > 0 && its.count() > 0) its.keep_this_thread();
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
  if (bound_by_default_of_mpirun() && !names_cores()) take_cores_of_launcher();
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
