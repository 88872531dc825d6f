// Twelve rows of two vectors of AVX-512: sums += a b, in the fewest instructions. A compiler computes addresses of rows anew in
// each step, and counts every second step.
#pragma once

#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/six_rows.h"

namespace trireme {

inline constexpr bool kTwelveRows = TRIREME_FMA && kLanes == 16;  // the target has what multiply_twelve_rows() needs

// As multiply_six_rows(), but sums begin at zero or in memory, and the vectors of b follow one another. For each eight k it fetches
// eight lines of the next panel, and a row of c.
template <Start start, StepsOfA of_a>
inline void multiply_twelve_rows(RegisterSums p, Ahead ahead) {
  static_assert(start != Start::scaled);
  int64_t third, sixth, ninth;  // rows of a
  asm volatile(R"(
    .if %c[zero]
      .irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23
        vpxord %%zmm\i, %%zmm\i, %%zmm\i
      .endr
    .else
      mov %[sums], %[third]
      .irp i, 0,2,4,6,8,10,12,14,16,18,20,22
        vmovups (%[third]), %%zmm\i; add %[next_sums], %[third]
      .endr
      mov %[sums], %[third]
      .irp i, 1,3,5,7,9,11,13,15,17,19,21,23
        vmovups 64(%[third]), %%zmm\i; add %[next_sums], %[third]
      .endr
    .endif
    lea (%[a], %[next_row], 2), %[third]; add %[next_row], %[third]
    lea (%[third], %[next_row], 2), %[sixth]; add %[next_row], %[sixth]
    lea (%[sixth], %[next_row], 2), %[ninth]; add %[next_row], %[ninth]
    .irp steps, 8, 1
      sub $\steps, %[k]; jl 2f
      .p2align 5
      1:
      .if \steps == 8
        sub $1, %[rows]; jl 3f
        prefetchw (%[c]); prefetchw 64(%[c]); add %[next_c], %[c]
        3:
      .endif
      .irp i, 0,1,2,3,4,5,6,7
        .if \i < \steps
          .if \i & 1
            prefetcht1 (%[panel], %[next_line]); lea (%[panel], %[next_line], 2), %[panel]
          .elseif \steps == 8
            prefetcht1 (%[panel])
          .endif
          vmovaps 128 * \i(%[b]), %%zmm24; vmovaps 128 * \i + 64(%[b]), %%zmm25
          vbroadcastss %c[next] * \i(%[a]), %%zmm26
          vfmadd231ps %%zmm24, %%zmm26, %%zmm0; vfmadd231ps %%zmm25, %%zmm26, %%zmm1
          vbroadcastss %c[next] * \i(%[a], %[next_row]), %%zmm27
          vfmadd231ps %%zmm24, %%zmm27, %%zmm2; vfmadd231ps %%zmm25, %%zmm27, %%zmm3
          vbroadcastss %c[next] * \i(%[a], %[next_row], 2), %%zmm28
          vfmadd231ps %%zmm24, %%zmm28, %%zmm4; vfmadd231ps %%zmm25, %%zmm28, %%zmm5
          vbroadcastss %c[next] * \i(%[third]), %%zmm29
          vfmadd231ps %%zmm24, %%zmm29, %%zmm6; vfmadd231ps %%zmm25, %%zmm29, %%zmm7
          vbroadcastss %c[next] * \i(%[third], %[next_row]), %%zmm30
          vfmadd231ps %%zmm24, %%zmm30, %%zmm8; vfmadd231ps %%zmm25, %%zmm30, %%zmm9
          vbroadcastss %c[next] * \i(%[third], %[next_row], 2), %%zmm31
          vfmadd231ps %%zmm24, %%zmm31, %%zmm10; vfmadd231ps %%zmm25, %%zmm31, %%zmm11
          vbroadcastss %c[next] * \i(%[sixth]), %%zmm26
          vfmadd231ps %%zmm24, %%zmm26, %%zmm12; vfmadd231ps %%zmm25, %%zmm26, %%zmm13
          vbroadcastss %c[next] * \i(%[sixth], %[next_row]), %%zmm27
          vfmadd231ps %%zmm24, %%zmm27, %%zmm14; vfmadd231ps %%zmm25, %%zmm27, %%zmm15
          vbroadcastss %c[next] * \i(%[sixth], %[next_row], 2), %%zmm28
          vfmadd231ps %%zmm24, %%zmm28, %%zmm16; vfmadd231ps %%zmm25, %%zmm28, %%zmm17
          vbroadcastss %c[next] * \i(%[ninth]), %%zmm29
          vfmadd231ps %%zmm24, %%zmm29, %%zmm18; vfmadd231ps %%zmm25, %%zmm29, %%zmm19
          vbroadcastss %c[next] * \i(%[ninth], %[next_row]), %%zmm30
          vfmadd231ps %%zmm24, %%zmm30, %%zmm20; vfmadd231ps %%zmm25, %%zmm30, %%zmm21
          vbroadcastss %c[next] * \i(%[ninth], %[next_row], 2), %%zmm31
          vfmadd231ps %%zmm24, %%zmm31, %%zmm22; vfmadd231ps %%zmm25, %%zmm31, %%zmm23
        .endif
      .endr
      .irp row, %[a], %[third], %[sixth], %[ninth]
        .if \steps == 8
          add $%c[eight], \row
        .else
          add $%c[next], \row
        .endif
      .endr
      add $128 * \steps, %[b]
      sub $\steps, %[k]; jge 1b
      2:
      add $\steps, %[k]
    .endr
    mov %[sums], %[third]
    .irp i, 0,2,4,6,8,10,12,14,16,18,20,22
      vmovups %%zmm\i, (%[third]); add %[next_sums], %[third]
    .endr
    mov %[sums], %[third]
    .irp i, 1,3,5,7,9,11,13,15,17,19,21,23
      vmovups %%zmm\i, 64(%[third]); add %[next_sums], %[third]
    .endr
  )"
               : [a] "+r"(p.a), [b] "+r"(p.b), [k] "+r"(p.k), [third] "=&r"(third), [sixth] "=&r"(sixth), [ninth] "=&r"(ninth),
                 [panel] "+r"(ahead.panel), [c] "+r"(ahead.c), [rows] "+r"(ahead.rows)
               : [next_row] "r"(p.row_of_a), [next_line] "r"(ahead.pair / 2), [next_c] "r"(ahead.step), [sums] "m"(p.sums),
                 [next_sums] "m"(p.row_of_sums), [next] "i"(of_a.next), [eight] "i"(of_a.eight), [zero] "i"(start == Start::zero)
               : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                 "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23",
                 "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
}

}  // namespace trireme
