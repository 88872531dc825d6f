#include "base/openmp_waits.h"
#include "test/runner.h"

int main(int argc, char** argv) {
  trireme::bound_openmp_waits(argv);  // as the program does
  return run_tests(argc, argv);
}
