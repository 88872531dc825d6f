// The `kernels:` section: where and in which numbers a step is computed.
#pragma once

#include "kernels/key.h"
#include "kernels/tensor.h"

namespace trireme {

enum class DeviceChoice { automatic, cpu, cuda };

template <>
struct Names<DeviceChoice> {
  static constexpr std::array<std::string_view, 3> words{"auto", "cpu", "cuda"};
};

enum class StepDtype { f32, bf16 };

template <>
struct Names<StepDtype> {
  static constexpr std::array<std::string_view, 2> words{"f32", "bf16"};
};

enum class AttentionKernels { automatic, ours, cudnn };

template <>
struct Names<AttentionKernels> {
  static constexpr std::array<std::string_view, 3> words{"auto", "ours", "cudnn"};
};

inline Dtype dtype_of(StepDtype dtype) { return dtype == StepDtype::bf16 ? Dtype::bf16 : Dtype::f32; }

struct KernelsConfig {
  DeviceChoice device = DeviceChoice::automatic;
  StepDtype dtype = StepDtype::bf16;
  int64_t threads = 0;
  AttentionKernels attention = AttentionKernels::automatic;

  void visit(auto& keys) {
    keys("device", device, "where the step runs; auto takes the CPU, cuda a GPU for each rank");
    keys("dtype", dtype, "weights and activations of the step; masters, moments, gradients and sums are always f32");
    keys("threads", threads, "CPU threads of a rank; 0 takes the node's cores divided by its ranks", between(0, 4096));
    keys("attention", attention,
         "on a GPU in bf16 without document masks: cuDNN's kernels, ours, or the faster, tried at the start");
  }

  // report("attention", "needs ...") for each problem.
  void check(auto&& report) const {
    if (attention == AttentionKernels::cudnn && device != DeviceChoice::cuda)
      report("attention", "is for GPUs: set kernels.device to cuda, or kernels.attention to auto");
  }
};

}  // namespace trireme
