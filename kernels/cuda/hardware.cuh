// Wrappers of GPU instructions. The emulation has its own version of this file:
// test/emulation/include/kernels/cuda/.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "kernels/tensor.h"

namespace trireme {

// The block's dynamic shared memory, aligned to 128 bytes.
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

// 2^x within 2^-22 of it; subnormal numbers count as 0.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The larger of two numbers, or NaN if one is.
__device__ inline float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// Two 8-bit numbers, each rounded as Float8 does (a NaN to one of several NaNs). The conversion
// header emulates what a GPU before sm_89 has no instruction for.
template <class T>
__device__ uint16_t float8_bits(float high, float low) {
  constexpr auto kKind = std::is_same_v<T, E4m3> ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, kKind);
}

__device__ inline uint32_t shared_address(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

// Starts to copy 16 bytes from global to shared memory, both aligned to 16, while the thread
// continues; wait for their group before use. Writes zeros and reads nothing unless `present`.
__device__ inline void copy_async(void* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(to)), "l"(from), "r"(present ? 16 : 0)
               : "memory");
}
// Closes a group of the copies that the thread has started since the last one.
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all of the thread's groups but the last kOpen. Other threads need a barrier to see the
// data.
template <int kOpen>
__device__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// Loads four matrices of 8 x 8 bf16 from shared memory; lanes 0 to 7, 8 to 15 and so on give the
// addresses of their rows. Of matrix m, lane l gets elements (l / 4, 2 (l % 4)) and its right
// neighbour in to[m]; transposed, (2 (l % 4), l / 4) and the one below it.
__device__ inline void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a b by a warp: a is 16 x 16, b 16 x 8, bf16; c 16 x 8, f32. With g = lane / 4, t = lane % 4:
// a[0..3] are rows g, g + 8, g, g + 8 at columns 2 t, 2 t, 2 t + 8, 2 t + 8 (two neighbours each);
// b[0..1] rows 2 t, 2 t + 8 (and the next) at column g; c[0..3] are (g, 2 t), (g, 2 t + 1), (g + 8,
// 2 t), (g + 8, 2 t + 1).
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace trireme
