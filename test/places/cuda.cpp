// The place of tests on a GPU, or on its emulation.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "test/reference/place.h"
#include "test/sanitized.h"

namespace trireme {
namespace {

void ok(cudaError_t status) { require(status == cudaSuccess, text(cudaGetErrorString(status))); }

}  // namespace

Place tested_place() { return Place::cuda; }
bool thorough() { return !kSanitized; }

bool multiplies_8_bits() {
  cudaDeviceProp properties{};
  ok(cudaGetDeviceProperties(&properties, 0));
  return properties.major >= 9;
}

std::byte* take_memory(int64_t bytes) {
  void* memory = nullptr;
  ok(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))));  // the GPU can access it too
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}
void give_memory(std::byte* memory) noexcept { cudaFreeHost(memory); }
void settle() { ok(cudaDeviceSynchronize()); }

}  // namespace trireme
