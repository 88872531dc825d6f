// Kernel launches for the .cu files of this directory. Kernels are started by start() alone, and
// get their block's shared memory from block_shared(). So the same sources run on a CPU under
// test/emulation/.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/hardware.cuh"
#include "kernels/cuda/host.h"

namespace trireme {

struct Grid {
  int64_t blocks;
  int threads;
  int64_t shared = 0;  // bytes
  int64_t blocks_y = 1, blocks_z = 1;
};

template <class... Parameters, class... Arguments>
void start(const Cuda& cuda, const Grid& grid, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return;
  constexpr int64_t kWithoutAsking = 48 << 10;
  if (grid.shared > kWithoutAsking) {
    const int64_t most = most_shared_bytes();
    require(grid.shared <= most, text("a kernel whose threads share ", grid.shared, " bytes; this GPU offers ", most));
    ok(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y), static_cast<unsigned>(grid.blocks_z));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared);
  config.stream = stream_of(cuda);
  ok(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

// Number of the grid's blocks that the GPU runs at once.
template <class Kernel>
int64_t blocks_at_once(Kernel* kernel, const Grid& grid) {
  int each = 0;
  ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, grid.threads, static_cast<size_t>(grid.shared)));
  return std::max<int64_t>(each, 1) * multiprocessors();
}

// The block's shared memory as a T; start the kernel with sizeof(T) bytes.
template <class T>
__device__ T& block_shared() {
  return *reinterpret_cast<T*>(shared_bytes());
}

// Calls f with a float or a Bf16 of value 0.
template <class F>
decltype(auto) with_dtype(Dtype dtype, F&& f) {
  require(dtype == Dtype::f32 || dtype == Dtype::bf16, text("a kernel of ", name_of(dtype), ", expected f32 or bf16"));
  return dtype == Dtype::bf16 ? f(Bf16{}) : f(float{});
}
// Calls f with a value of the dtype of a residual stream, f32 or `dtype`, and one of `dtype`.
template <class F>
void with_stream_dtype(Dtype stream, Dtype dtype, const F& f) {
  with_dtype(dtype, [&](auto zero) { stream == dtype ? f(zero, zero) : f(float{}, zero); });
}

}  // namespace trireme
