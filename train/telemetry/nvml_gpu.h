// NvmlGpu: one GPU, read through NVIDIA's management library, which is opened when it is there.
#pragma once

#include <memory>
#include <string>

#include "train/telemetry/gpu_health.h"

namespace trireme {

constexpr auto kNvml = "libnvidia-ml.so.1";

// For one thread. A call may take milliseconds, and may never return for a GPU that has fallen off its bus.
class NvmlGpu {
 public:
  // The GPU with this address on the PCI bus, "0000:1b:00.0". nullptr without the library, a driver or such a GPU.
  static std::unique_ptr<NvmlGpu> open(const std::string& bus, const std::string& library = kNvml);
  struct State;
  explicit NvmlGpu(std::unique_ptr<State> state);
  ~NvmlGpu();
  NvmlGpu(const NvmlGpu&) = delete;
  NvmlGpu& operator=(const NvmlGpu&) = delete;

  // Its readings now. Energy and Xid errors count from the first call on.
  GpuHealth read();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trireme
