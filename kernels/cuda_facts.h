// What this build and this machine can do with CUDA; answered by kernels/cuda/ or, in a build without it, by cuda_absent.cpp.
#pragma once

#include <string>

namespace trireme {

struct CudaFacts {
  bool built = false;       // this binary holds CUDA code
  int devices = 0;          // GPUs that answer
  std::string toolkit{};    // "13.0", empty without
  std::string device{};     // the name of the GPU this thread uses
  bool kernel_ran = false;  // a trivial kernel gave the right answer on it
  std::string verdict{};    // one sentence for people
};
CudaFacts cuda_facts();

}  // namespace trireme
