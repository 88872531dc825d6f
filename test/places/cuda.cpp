// The GPU, or its emulation.
#include <cuda_runtime.h>

#include "test/reference/place.h"

namespace trireme {
namespace {

void ok(cudaError_t status) { require(status == cudaSuccess, text(cudaGetErrorString(status))); }

}  // namespace

Place tested_place() { return Place::cuda; }

std::byte* take_memory(int64_t bytes) {
  void* memory = nullptr;
  ok(cudaMallocManaged(&memory, static_cast<size_t>(bytes)));
  ok(cudaMemset(memory, 0, static_cast<size_t>(bytes)));
  settle();
  return static_cast<std::byte*>(memory);
}
void give_memory(std::byte* memory) noexcept { cudaFree(memory); }
void settle() { ok(cudaDeviceSynchronize()); }

}  // namespace trireme
