#include "base/openmp_start.h"
#include "test/runner.h"

int main(int argc, char** argv) {
  trireme::settle_openmp(argv);  // as the program does
  return run_tests(argc, argv);
}
