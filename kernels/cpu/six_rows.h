// Six rows of two vectors of AVX2, or four: sums += a b, in the fewest instructions. Compilers keep twelve sums in registers
// only in short loops, whose counting takes a tenth of a core that two threads share.
#pragma once

#include "kernels/cpu/tiles.h"

namespace trireme {

inline constexpr bool kSixRows = TRIREME_FMA && kLanes == 8;  // the target has what multiply_six_rows() needs

// Sums at first: zero, those in memory, or row i of them times scale[i].
enum class Start { zero, sum, scaled };

// Sums that stay in registers meanwhile. Distances are in bytes.
struct RegisterSums {
  const float* a;
  int64_t row_of_a;
  const float* b;  // two vectors for each k, aligned
  int64_t next_of_b;
  int64_t k;
  float* sums;
  int64_t row_of_sums;
  const float* scale = nullptr;
};

// Bytes from one element of a to the next, and to the eighth after it.
struct StepsOfA {
  int next, eight;
};

// In steps of eight k, then of one. `adjacent`: the vectors of b follow one another.
template <Start start, StepsOfA of_a, bool adjacent, int rows = 6>
requires(rows == 4 || rows == 6) inline void multiply_six_rows(RegisterSums p) {
  int64_t fourth;  // row of the sums, then of a
  asm volatile(R"(
    lea (%[sums], %[next_sums], 2), %[fourth]; add %[next_sums], %[fourth]
    .if %c[zero]
      .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
        vxorps %%xmm\i, %%xmm\i, %%xmm\i
      .endr
    .else
      vmovups (%[sums]), %%ymm0; vmovups 32(%[sums]), %%ymm1
      vmovups (%[sums], %[next_sums]), %%ymm2; vmovups 32(%[sums], %[next_sums]), %%ymm3
      vmovups (%[sums], %[next_sums], 2), %%ymm4; vmovups 32(%[sums], %[next_sums], 2), %%ymm5
      vmovups (%[fourth]), %%ymm6; vmovups 32(%[fourth]), %%ymm7
      .if %c[six]
        vmovups (%[fourth], %[next_sums]), %%ymm8; vmovups 32(%[fourth], %[next_sums]), %%ymm9
        vmovups (%[fourth], %[next_sums], 2), %%ymm10; vmovups 32(%[fourth], %[next_sums], 2), %%ymm11
      .endif
    .endif
    .if %c[scaled]
      vbroadcastss (%[scale]), %%ymm12; vmulps %%ymm12, %%ymm0, %%ymm0; vmulps %%ymm12, %%ymm1, %%ymm1
      vbroadcastss 4(%[scale]), %%ymm13; vmulps %%ymm13, %%ymm2, %%ymm2; vmulps %%ymm13, %%ymm3, %%ymm3
      vbroadcastss 8(%[scale]), %%ymm14; vmulps %%ymm14, %%ymm4, %%ymm4; vmulps %%ymm14, %%ymm5, %%ymm5
      vbroadcastss 12(%[scale]), %%ymm15; vmulps %%ymm15, %%ymm6, %%ymm6; vmulps %%ymm15, %%ymm7, %%ymm7
      .if %c[six]
        vbroadcastss 16(%[scale]), %%ymm12; vmulps %%ymm12, %%ymm8, %%ymm8; vmulps %%ymm12, %%ymm9, %%ymm9
        vbroadcastss 20(%[scale]), %%ymm13; vmulps %%ymm13, %%ymm10, %%ymm10; vmulps %%ymm13, %%ymm11, %%ymm11
      .endif
    .endif
    lea (%[a], %[next_row], 2), %[fourth]; add %[next_row], %[fourth]
    .irp steps, 8, 1
      sub $\steps, %[k]; jl 2f
      .p2align 5
      1:
      .irp i, 0,1,2,3,4,5,6,7
        .if \i < \steps
          .if %c[adjacent]
            vmovaps 64 * \i(%[b]), %%ymm12; vmovaps 64 * \i + 32(%[b]), %%ymm13
          .elseif \i & 1
            vmovaps (%[b], %[next_b]), %%ymm12; vmovaps 32(%[b], %[next_b]), %%ymm13; lea (%[b], %[next_b], 2), %[b]
          .else
            vmovaps (%[b]), %%ymm12; vmovaps 32(%[b]), %%ymm13
          .endif
          vbroadcastss %c[next] * \i(%[a]), %%ymm14
          vfmadd231ps %%ymm12, %%ymm14, %%ymm0; vfmadd231ps %%ymm13, %%ymm14, %%ymm1
          vbroadcastss %c[next] * \i(%[a], %[next_row]), %%ymm15
          vfmadd231ps %%ymm12, %%ymm15, %%ymm2; vfmadd231ps %%ymm13, %%ymm15, %%ymm3
          vbroadcastss %c[next] * \i(%[a], %[next_row], 2), %%ymm14
          vfmadd231ps %%ymm12, %%ymm14, %%ymm4; vfmadd231ps %%ymm13, %%ymm14, %%ymm5
          vbroadcastss %c[next] * \i(%[fourth]), %%ymm15
          vfmadd231ps %%ymm12, %%ymm15, %%ymm6; vfmadd231ps %%ymm13, %%ymm15, %%ymm7
          .if %c[six]
            vbroadcastss %c[next] * \i(%[fourth], %[next_row]), %%ymm14
            vfmadd231ps %%ymm12, %%ymm14, %%ymm8; vfmadd231ps %%ymm13, %%ymm14, %%ymm9
            vbroadcastss %c[next] * \i(%[fourth], %[next_row], 2), %%ymm15
            vfmadd231ps %%ymm12, %%ymm15, %%ymm10; vfmadd231ps %%ymm13, %%ymm15, %%ymm11
          .endif
        .endif
      .endr
      .if \steps == 8
        add $%c[eight], %[a]; add $%c[eight], %[fourth]
      .else
        add $%c[next], %[a]; add $%c[next], %[fourth]
      .endif
      .if %c[adjacent]
        add $64 * \steps, %[b]
      .elseif \steps == 1
        add %[next_b], %[b]
      .endif
      sub $\steps, %[k]; jge 1b
      2:
      add $\steps, %[k]
    .endr
    lea (%[sums], %[next_sums], 2), %[fourth]; add %[next_sums], %[fourth]
    vmovups %%ymm0, (%[sums]); vmovups %%ymm1, 32(%[sums])
    vmovups %%ymm2, (%[sums], %[next_sums]); vmovups %%ymm3, 32(%[sums], %[next_sums])
    vmovups %%ymm4, (%[sums], %[next_sums], 2); vmovups %%ymm5, 32(%[sums], %[next_sums], 2)
    vmovups %%ymm6, (%[fourth]); vmovups %%ymm7, 32(%[fourth])
    .if %c[six]
      vmovups %%ymm8, (%[fourth], %[next_sums]); vmovups %%ymm9, 32(%[fourth], %[next_sums])
      vmovups %%ymm10, (%[fourth], %[next_sums], 2); vmovups %%ymm11, 32(%[fourth], %[next_sums], 2)
    .endif
  )"
               : [a] "+r"(p.a), [b] "+r"(p.b), [k] "+r"(p.k), [fourth] "=&r"(fourth)
               : [next_row] "r"(p.row_of_a), [next_b] "r"(p.next_of_b), [sums] "r"(p.sums), [next_sums] "r"(p.row_of_sums),
                 [scale] "r"(p.scale), [next] "i"(of_a.next), [eight] "i"(of_a.eight), [adjacent] "i"(adjacent),
                 [six] "i"(rows == 6), [zero] "i"(start == Start::zero), [scaled] "i"(start == Start::scaled)
               : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                 "xmm12", "xmm13", "xmm14", "xmm15");
}

}  // namespace trireme
