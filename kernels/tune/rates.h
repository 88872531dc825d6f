// Measures the best rates of this machine: the limits to which `trireme bench` compares the
// kernels.
//
// They use OpenMP's threads and memory of their own from `device` (not frozen). They
// report the best of several runs after a warm-up: other processes can only slow a run down, so the
// best is the closest to the hardware.
#pragma once

#include <vector>

#include "kernels/tune/product_trial.h"

namespace trireme {

// GB/s of a large copy, counting `bytes` read and `bytes` written. The best of ten.
constexpr int64_t kCopiedBytes = int64_t{1} << 28;
double copy_bandwidth(Device& device, int64_t bytes = kCopiedBytes);

// GFLOP/s of run(Matmul) alone over all shapes together: the sum of count * 2 m n k over the sum of
// count * best time. Each shape runs at least three times and for `least_seconds`. Operands have
// `dtype`; with accumulate the result is f32.
double product_rate(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, double least_seconds = 0.05);

// GFLOP/s of the instructions that multiply and add, in registers, on all threads, as the processor holds them for half a second:
// those of f32, or if `dtype` is bf16, of AMX, or else the faster ones of f32 and AVX512-BF16. 0 if unknown: on a GPU, and for
// AMX that this process may not use.
double instruction_rate(const Device& device, Dtype dtype);

// A product rate, and how far its measuring windows agree.
struct SteadyRate {
  double best = 0;    // GFLOP/s of all shapes together, each in its best window; 0: nothing to multiply
  double spread = 0;  // 1 - rate of each shape's third best window / best: near 0 unless other programs take the cores
};

// The rate of run(Matmul) over all shapes in ProductTrial::kWindows windows each. Operands as for product_rate.
SteadyRate steady_product_rate(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes);

}  // namespace trireme
