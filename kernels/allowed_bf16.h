// Instructions for bf16 that oneDNN uses on this processor: the user can forbid some by DNNL_MAX_CPU_ISA.
#pragma once

namespace trireme {

struct AllowedBf16 {
  bool avx512, amx;
};
AllowedBf16 allowed_bf16();

}  // namespace trireme
