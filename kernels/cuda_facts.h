// What this build and this machine can do with CUDA; answered by kernels/cuda/ or, in a build without it, by cuda_absent.cpp.
#pragma once

#include <string>

#include "kernels/op_shape.h"

namespace trireme {

struct CudaFacts {
  bool built = false;       // this binary holds CUDA code
  int devices = 0;          // GPUs that answer
  std::string toolkit{};    // "13.0", empty without
  std::string device{};     // the name of the GPU this thread uses
  int capability = 0;       // of that GPU: 90 for 9.0
  bool kernel_ran = false;  // a trivial kernel gave the right answer on it
  std::string verdict{};    // one sentence for people
};
CudaFacts cuda_facts();

// The library that brings fused attention kernels: cuDNN.
struct FusedFacts {
  bool found = false;
  std::string verdict{};  // its name and version, or what is missing
};
FusedFacts fused_attention_facts();

// Why it does not do this shape on this thread's GPU; empty: it does, with the same bits every time and a bounded workspace. The
// first call for a shape compiles its kernels, which can take seconds.
std::string fused_refusal(const AttentionShape& shape);

}  // namespace trireme
