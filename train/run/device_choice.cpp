#include "train/run/device_choice.h"

#include "base/error.h"
#include "kernels/cuda_facts.h"

namespace trireme {

void choose_device(RunConfig& config) {
  if (config.kernels.device != DeviceChoice::automatic) return;
  const CudaFacts gpu = cuda_facts();
  config.use_device(gpu.kernel_ran ? DeviceChoice::cuda : DeviceChoice::cpu);
  if (gpu.kernel_ran) {
    std::string problems;
    config.check(Purpose::mesh, [&](const std::string& key, const std::string& problem) {
      problems += (problems.empty() ? "" : "\n") + key + ": " + problem + " (chosen by kernels.device = auto)";
    });
    if (!problems.empty()) throw ConfigError(problems);
    return;
  }
  if (config.train.offload != Offload::none)
    throw ConfigError("train.offload = optimizer: is for GPUs, and kernels.device = auto finds none: " + gpu.verdict +
                      "; set train.offload to none");
  if (config.kernels.attention == AttentionKernels::cudnn)
    throw ConfigError("kernels.attention = cudnn: is for GPUs, and kernels.device = auto finds none: " + gpu.verdict +
                      "; set kernels.attention to auto");
}

}  // namespace trireme
