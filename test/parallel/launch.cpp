#include "test/parallel/launch.h"

#include <cstdio>
#include <filesystem>

namespace trireme::test {

std::pair<std::string, int> output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  return {out, pclose(pipe)};
}

std::string mpirun(int ranks, const std::string& tests) {
  return "ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
         "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_pml=ob1 "
         "mpirun --oversubscribe -n " +
         std::to_string(ranks) + " " + std::filesystem::read_symlink("/proc/self/exe").string() + " '" + tests + "'";
}

}  // namespace trireme::test
