// Replaces nccl.cpp in a build without NCCL.
#include "parallel/gpu_group.h"

namespace trireme {

std::unique_ptr<GpuGroup> open_gpu_group(const Comm& comm, const GpuUse&) {
  throw ConfigError(text("kernels.device = cuda on ", comm.size(), " ranks along ", comm.axis(),
                         ": this program was built without NCCL; start one rank, or install nccl.h and rebuild"));
}

std::optional<GpuAllocator> known_memory_allocator() { return std::nullopt; }

}  // namespace trireme
