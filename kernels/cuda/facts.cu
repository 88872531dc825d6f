// y[i] = x[i] + 1 on n elements: checks that code compiled here runs on this GPU. Grid: n / 256
// blocks of 256 threads.
#include <cuda_runtime.h>

#include <array>

#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

__global__ void add_one(int* y, const int* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i] + 1;
}

bool kernel_runs() {
  constexpr int n = 1000;
  std::array<int, n> host{};
  for (int i = 0; i < n; ++i) host[i] = 3 * i;
  int* memory = nullptr;
  if (cudaMalloc(&memory, 2 * n * sizeof(int)) != cudaSuccess) return false;
  int* y = memory + n;
  bool fine = cudaMemcpy(memory, host.data(), n * sizeof(int), cudaMemcpyHostToDevice) == cudaSuccess;
  const int* x = memory;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3((n + 255) / 256);
  config.blockDim = dim3(256);
  fine = fine && cudaLaunchKernelEx(&config, add_one, y, x, n) == cudaSuccess;
  fine = fine && cudaMemcpy(host.data(), y, n * sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess;
  for (int i = 0; fine && i < n; ++i) fine = host[i] == 3 * i + 1;
  cudaFree(memory);
  return fine;
}

}  // namespace

CudaFacts cuda_facts() {
  CudaFacts facts{.built = true};
  facts.toolkit = std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) facts.devices = devices;
  if (facts.devices == 0) {
    facts.verdict = "built with CUDA " + facts.toolkit + ", but no GPU responds";
    return facts;
  }
  cudaDeviceProp properties{};
  int mine = 0;
  if (cudaGetDevice(&mine) == cudaSuccess && cudaGetDeviceProperties(&properties, mine) == cudaSuccess)
    facts.device = properties.name, facts.capability = 10 * properties.major + properties.minor;
  facts.kernel_ran = kernel_runs();
  facts.verdict = facts.kernel_ran ? facts.device + " runs our kernels; kernels.device = cuda uses it"
                                   : facts.device + " responds, but a trivial kernel failed on it";
  return facts;
}

}  // namespace trireme
