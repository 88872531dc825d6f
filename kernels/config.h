// The `kernels:` section of a config: the device and the dtypes of a step.
#pragma once

#include "base/key.h"
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

enum class LogitsDtype { automatic, f32, bf16 };

template <>
struct Names<LogitsDtype> {
  static constexpr std::array<std::string_view, 3> words{"auto", "f32", "bf16"};
};

enum class AttentionKernels { automatic, ours, cudnn };

template <>
struct Names<AttentionKernels> {
  static constexpr std::array<std::string_view, 3> words{"auto", "ours", "cudnn"};
};

enum class ProductKernels { automatic, onednn, ours };

template <>
struct Names<ProductKernels> {
  static constexpr std::array<std::string_view, 3> words{"auto", "onednn", "ours"};
};

enum class ResidualDtype { f32, bf16 };

template <>
struct Names<ResidualDtype> {
  static constexpr std::array<std::string_view, 2> words{"f32", "bf16"};
};

enum class MatmulDtype { automatic, bf16, fp8 };

template <>
struct Names<MatmulDtype> {
  static constexpr std::array<std::string_view, 3> words{"auto", "bf16", "fp8"};
};

enum class Fp8Weights { step, microbatch };

template <>
struct Names<Fp8Weights> {
  static constexpr std::array<std::string_view, 2> words{"step", "microbatch"};
};

inline Dtype dtype_of(StepDtype dtype) { return dtype == StepDtype::bf16 ? Dtype::bf16 : Dtype::f32; }

struct KernelsConfig {
  DeviceChoice device = DeviceChoice::automatic;
  StepDtype dtype = StepDtype::bf16;
  ResidualDtype residual = ResidualDtype::f32;
  MatmulDtype matmul = MatmulDtype::automatic;
  Fp8Weights fp8_weights = Fp8Weights::step;
  int64_t bf16_layers = 0;
  LogitsDtype logits = LogitsDtype::automatic;
  int64_t threads = 0;
  bool graph = true;
  bool autotune = true;
  AttentionKernels attention = AttentionKernels::automatic;
  ProductKernels products = ProductKernels::automatic;

  void visit(auto& keys) {
    keys("device", device, "device of a step; cuda: a GPU for each rank; auto: cuda if a GPU runs our kernels, else cpu");
    keys("dtype", dtype,
         "dtype of matrices and activations in a step; weights of one dim, masters, moments, gradients and sums are always f32",
         identity());
    keys("residual", residual,
         "dtype of the residual stream and its gradient; bf16: less memory, and gradients further from the truth", identity());
    keys("matmul", matmul, "operands of products with weights; fp8: 8-bit, scaled per tensor (the CPU emulates it, no faster)");
    keys("fp8_weights", fp8_weights,
         "with fp8: round weights once a step and keep them, 2 bytes each (not with parallel.zero = 3), or in each microbatch");
    keys("bf16_layers", bf16_layers, "with fp8: number of layers at each end of the model that use bf16, as the classifier does",
         at_least(0));
    keys("logits", logits, "dtype of the logits in a loss; auto: kernels.dtype on a GPU, f32 on the CPU; sums are always f32");
    keys("threads", threads, "CPU threads of a rank; 0: the node's cores divided by its ranks", between(0, 4096));
    keys("autotune", autotune,
         "on a GPU: time the algorithms of each product before the first step; choices are kept in RUN/kernels.json");
    keys("graph", graph,
         "on a GPU: record a step once and replay it as one CUDA graph, unless parallel.zero > 0 or parallel.pp > 1");
    keys("attention", attention, "on a GPU in bf16: cudnn, ours, or auto for the faster, timed at the start");
    keys("products", products,
         "on a CPU: onednn, ours, or auto: onednn by AMX, for f32 where bf16 instructions are faster than those of f32, and where "
         "it has wider vectors; else ours; invariant numerics take ours");
  }

  // Reports keys that contradict each other, as (key, message).
  void check(auto&& report) const {
    if (logits == LogitsDtype::bf16 && dtype == StepDtype::f32) report("logits", "must be f32 or auto with kernels.dtype = f32");
    if (residual == ResidualDtype::bf16 && dtype == StepDtype::f32) report("residual", "must be f32 with kernels.dtype = f32");
    if (matmul != MatmulDtype::automatic && dtype == StepDtype::f32)
      report("matmul", "must be auto with kernels.dtype = f32; or set kernels.dtype = bf16");
    if (attention == AttentionKernels::cudnn && device == DeviceChoice::cpu)
      report("attention", "is for GPUs: set kernels.device to cuda, or kernels.attention to auto");
  }

  // A GPU's products and losses are bound by memory: bf16 logits move half the bytes, and their
  // gradients replace them.
  Dtype logits_dtype() const {
    if (logits != LogitsDtype::automatic) return logits == LogitsDtype::bf16 ? Dtype::bf16 : Dtype::f32;
    return device == DeviceChoice::cuda ? dtype_of(dtype) : Dtype::f32;
  }

  Dtype residual_dtype() const { return residual == ResidualDtype::bf16 ? Dtype::bf16 : Dtype::f32; }

  // True if products fuse what they can: see ops/matmul.h.
  bool fused_products() const { return device == DeviceChoice::cuda && dtype == StepDtype::bf16; }
};

}  // namespace trireme
