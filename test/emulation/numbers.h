// Numbers of any dtype and GELU, in double, for emulated products.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/tensor.h"

namespace trireme::emulation {

// Element i of x.
inline double read(const void* x, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::bf16:
      return static_cast<float>(static_cast<const Bf16*>(x)[i]);
    case Dtype::e4m3:
      return static_cast<float>(static_cast<const E4m3*>(x)[i]);
    case Dtype::e5m2:
      return static_cast<float>(static_cast<const E5m2*>(x)[i]);
    default:
      return static_cast<const float*>(x)[i];
  }
}
inline void write(void* x, Dtype dtype, int64_t i, double value) {
  if (dtype == Dtype::bf16)
    static_cast<Bf16*>(x)[i] = Bf16(static_cast<float>(value));
  else
    static_cast<float*>(x)[i] = static_cast<float>(value);
}

inline double tanh_of(double x) { return std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)); }
inline double gelu(double x) { return x / 2 * (1 + tanh_of(x)); }
inline double gelu_slope(double x) {
  const double t = tanh_of(x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

}  // namespace trireme::emulation
