// Capabilities of this build and this machine with CUDA. Implemented by kernels/cuda/, or by
// cuda_absent.cpp in a build without it.
#pragma once

#include <string>

#include "kernels/op_shape.h"

namespace trireme {

struct CudaFacts {
  bool built = false;       // this binary contains CUDA code
  int devices = 0;          // GPUs that respond
  std::string toolkit{};    // "13.0"; empty without CUDA
  std::string device{};     // name of the GPU that this thread uses
  int capability = 0;       // of that GPU: 90 for 9.0
  bool kernel_ran = false;  // a trivial kernel gave the right answer on it
  std::string verdict{};    // one sentence for the user
};
CudaFacts cuda_facts();

// Largest shapes that our kernels take on this thread's GPU.
struct KernelLimits {
  int64_t shared_bytes = 0;          // memory that the threads of a block share
  int64_t head_size = 0;             // of attention, forward and backward
  int64_t pack = 1;                  // columns that a thread loads at once
  int64_t width = 0, odd_width = 0;  // columns of a norm: a multiple of `pack`; others
};
KernelLimits kernel_limits();

// Facts about cuDNN, the library of fused attention kernels.
struct FusedFacts {
  bool found = false;
  std::string verdict{};  // its name and version, or what is missing
};
FusedFacts fused_attention_facts();
// Bytes of workspace that they may have. A deterministic backward stores a [T, T] matrix for each
// head, and is computed for as many heads at a time as fit the usual limit; for those that share one
// key-value head, up to `most`.
struct FusedWorkspace {
  int64_t usual = int64_t{1} << 30, most = int64_t{9} << 28;
};

// Why the library does not support this shape on this thread's GPU. Empty if it does: with the same
// bits every time and a bounded workspace. The first call for a shape compiles its kernels, which
// can take seconds.
std::string fused_refusal(const AttentionShape& shape);

}  // namespace trireme
