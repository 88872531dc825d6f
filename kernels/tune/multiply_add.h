// Multiplications and additions in registers: no product is faster than these instructions.
#pragma once

#include <cstdint>

namespace trireme {

// Each does its instructions so many times, on the calling thread, if the processor has them. Returns the FLOPs.
double multiply_and_add_plain(int64_t times);   // f32 in vectors of 16 bytes; two instructions of SSE, one of Arm's
double multiply_and_add_avx2(int64_t times);    // f32
double multiply_and_add_avx512(int64_t times);  // f32
double multiply_and_add_bf16(int64_t times);    // AVX512-BF16
double multiply_and_add_amx(int64_t times);     // AMX, if may_use_amx()

}  // namespace trireme
