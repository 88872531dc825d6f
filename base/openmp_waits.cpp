#include "base/openmp_waits.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

namespace trireme {
namespace {

// Rounds of a spinning wait before the thread sleeps: about half a millisecond. Fewer cost an idle machine
// several percent of a step, since most waits are that long. More cost a busy one a multiple of it.
constexpr auto kSpins = "10000";
constexpr auto kPolicy = "OMP_WAIT_POLICY", kSpinCount = "GOMP_SPINCOUNT";
constexpr auto kRestarted = "TRIREME_BOUNDED_WAITS";  // marks the second start

// A program that was started through the dynamic loader's own name cannot be found by /proc/self/exe.
bool started_by_loader() { return getauxval(AT_BASE) == 0; }

void forget() {
  for (const char* name : {kRestarted, kSpinCount}) unsetenv(name);
}

}  // namespace

void bound_openmp_waits(char** argv) {
  if (std::getenv(kRestarted) != nullptr) return forget();
  if (std::getenv(kPolicy) != nullptr || std::getenv(kSpinCount) != nullptr || started_by_loader()) return;
  // The file's own name: a process started as /proc/self/exe would be listed as "exe".
  std::array<char, PATH_MAX> program{};
  if (const ssize_t length = readlink("/proc/self/exe", program.data(), program.size() - 1); length <= 0) return;
  setenv(kSpinCount, kSpins, 1);
  setenv(kRestarted, "1", 1);
  execv(program.data(), argv);
  forget();
}

}  // namespace trireme
