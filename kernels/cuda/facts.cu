// y[i] = x[i] + 1 on n elements: checks that code compiled here runs on this GPU. Grid: n / 256
// blocks of 256 threads.
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

__global__ void add_one(int* y, const int* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i] + 1;
}

// CUDA's reason why the kernel did not give the right answer; "" if it did.
std::string failure_of_kernel() {
  constexpr int n = 1000;
  std::array<int, n> host{};
  for (int i = 0; i < n; ++i) host[i] = 3 * i;
  int* memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, 2 * n * sizeof(int));
  if (error != cudaSuccess) return cudaGetErrorString(error);
  int* y = memory + n;
  const int* x = memory;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3((n + 255) / 256);
  config.blockDim = dim3(256);
  error = cudaMemcpy(memory, host.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, add_one, y, x, n);
  if (error == cudaSuccess) error = cudaMemcpy(host.data(), y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(memory);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (int i = 0; i < n; ++i)
    if (host[i] != 3 * i + 1) return "its results are wrong";
  return "";
}

}  // namespace

CudaFacts cuda_facts() {
  CudaFacts facts{.built = true};
  facts.toolkit = std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess) facts.devices = devices;
  if (facts.devices == 0) {
    const std::string reason = error == cudaSuccess ? "none is visible" : cudaGetErrorString(error);
    facts.verdict = "built with CUDA " + facts.toolkit + ", but no GPU responds (" + reason + ")";
    return facts;
  }
  cudaDeviceProp properties{};
  int mine = 0;
  if (cudaGetDevice(&mine) == cudaSuccess && cudaGetDeviceProperties(&properties, mine) == cudaSuccess)
    facts.device = properties.name, facts.capability = 10 * properties.major + properties.minor;
  static std::mutex mutex;
  static std::map<int, std::string> failures;  // by GPU; "": none
  const std::lock_guard lock(mutex);
  if (const auto known = failures.find(mine); known == failures.end() || !known->second.empty())
    failures[mine] = failure_of_kernel();
  const std::string& failure = failures.at(mine);
  facts.kernel_ran = failure.empty();
  facts.verdict = facts.kernel_ran ? facts.device + " runs our kernels; kernels.device = auto or cuda uses it"
                                   : facts.device + " responds, but a trivial kernel failed on it: " + failure;
  return facts;
}

}  // namespace trireme
