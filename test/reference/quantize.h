// Specification of kernels/ops/quantize.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

// All nonnegative finite numbers of an 8-bit format, in order, by the meaning of its bits: element
// i has the bits i.
Doubles numbers_of_8_bits(Dtype dtype);

// The nearest of them with x's sign; of two equally near, the one with even bits; for larger x, the
// largest.
double nearest_of_8_bits(Dtype dtype, double x);

// x / scale, rounded. The scale is f32, and so is the factor that stands for its inverse.
struct Quantized {
  Doubles y;
  double scale;
};
Quantized quantize(Dtype dtype, const Doubles& x);

Doubles transpose(const Doubles& x, int64_t rows, int64_t cols);

}  // namespace trireme::reference
