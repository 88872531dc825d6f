// Host helpers for the files of this directory: CUDA's errors, and a lane's stream and scratch
// memory.
#pragma once

#include <cuda_runtime.h>

#include <source_location>

#include "kernels/stream.h"

namespace trireme {

// Throws Error with CUDA's message, at the caller's line, unless the call succeeded.
inline void ok(cudaError_t status, std::source_location at = std::source_location::current()) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + cudaGetErrorString(status), at);
}

inline cudaStream_t stream_of(const Cuda& cuda) { return stream_of(*cuda.lane); }
inline void* scratch(const Cuda& cuda, int64_t bytes) { return scratch(*cuda.lane, bytes); }

// Number of multiprocessors of the GPU: grids that walk their work have a few blocks for each.
int multiprocessors();
int current_gpu();            // CUDA's number of this thread's GPU
int64_t most_shared_bytes();  // that the threads of a block may share on it
int gpu_generation();         // the first part of its compute capability: 8 for Ampere, 9 for Hopper, 10 for Blackwell

}  // namespace trireme
