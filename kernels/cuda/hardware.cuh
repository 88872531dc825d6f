// What the GPU does by instructions of its own. The emulation has this file's twin: test/emulation/include/kernels/cuda/.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace trireme {

// The block's dynamic shared memory, at a multiple of 128.
__device__ inline unsigned char* shared_bytes() {
  extern __shared__ __align__(128) unsigned char bytes[];
  return bytes;
}

// Rounded to nearest even.
__device__ inline uint32_t bf16_bits(float high, float low) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ inline Bf16 to_bf16(float x) {
  Bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

}  // namespace trireme
