// The twin of kernels/cuda/hardware.cuh for the emulation.
#pragma once

#include <cuda_runtime.h>

#include "kernels/tensor.h"

namespace trireme {

inline unsigned char* shared_bytes() { return reinterpret_cast<unsigned char*>(emulation::shared_memory()); }

inline Bf16 to_bf16(float x) { return Bf16(x); }
inline uint32_t bf16_bits(float high, float low) { return uint32_t{Bf16(high).bits} << 16 | Bf16(low).bits; }

}  // namespace trireme
