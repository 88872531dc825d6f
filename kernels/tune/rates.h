// What this machine can do at best, measured now: the ceilings against which `trireme bench` sets the kernels.
//
// Both measure with the threads OpenMP has, on memory of their own from `device` (not frozen), and report the best
// of several runs after one that warms up: another process can only make a run slower, so the best is nearest to the machine.
#pragma once

#include <vector>

#include "kernels/tune/product_trial.h"

namespace trireme {

// GB/s of a large copy: `bytes` read and `bytes` written, both counted. The best of ten.
double copy_bandwidth(Device& device, int64_t bytes = int64_t{1} << 28);

// GFLOP/s of run(Matmul) alone over all shapes together: the sum of count * 2 m n k over the sum of count * best time. Each shape
// is run until three runs and `least_seconds` have passed. Operands are of `dtype`, with accumulate the result is f32.
double product_rate(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, double least_seconds = 0.05);

// A product rate, and how far its measuring windows agree.
struct SteadyRate {
  double best = 0;    // GFLOP/s of all shapes together, each in its best window; 0: nothing to multiply
  double spread = 0;  // 1 - rate of each shape's third best window / best: near 0 unless other programs take the cores
};

// The rate of run(Matmul) over all shapes in ProductTrial::kWindows windows each. Operands as for product_rate.
SteadyRate steady_product_rate(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes);

}  // namespace trireme
