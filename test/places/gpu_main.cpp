// main() of tests that need a GPU: without one they are skipped.
#include <cuda_runtime.h>

#include <cstdio>

#define CATCH_CONFIG_RUNNER
#include "test/catch.h"

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU answers here");
    return 0;
  }
  return Catch::Session().run(argc, argv);
}
