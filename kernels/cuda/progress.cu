#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_machine.h"

namespace trireme {
namespace {

__global__ void count_one(unsigned long long* counter) {
  atomicAdd(counter, 1ull);
  __threadfence_system();
}

}  // namespace

std::byte* open_to_gpu(std::byte* memory, int64_t bytes) {
  void* address = nullptr;
  if (cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterMapped) != cudaSuccess ||
      cudaHostGetDevicePointer(&address, memory, 0) != cudaSuccess)
    (void)cudaGetLastError();  // or the next call would report it
  return static_cast<std::byte*>(address);
}

void close_to_gpu(std::byte* memory) noexcept {
  if (!gpu_is_stuck()) cudaHostUnregister(memory);
}

void count_on_gpu(CudaLane& lane, std::byte* counter) {
  start(Cuda{.lane = &lane}, {.blocks = 1, .threads = 1}, count_one, reinterpret_cast<unsigned long long*>(counter));
}

}  // namespace trireme
