// main() of tests that need a GPU: skips them if there is none.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "test/runner.h"

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // as World does, too late for the next line
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU responds");
    return 0;
  }
  return run_tests(argc, argv);
}
