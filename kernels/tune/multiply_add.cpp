#include "kernels/tune/multiply_add.h"

namespace trireme {

namespace {

using Register [[gnu::vector_size(__BIGGEST_ALIGNMENT__)]] = float;  // as wide as the target's

// Independent sums: enough to fill two pipelines of latency 4, and fewer than the registers.
constexpr int kSums = 12;

}  // namespace

// The compiler may know neither sums nor factors: it would keep one of equal sums, and multiply equal factors once.
[[gnu::noinline]] double multiply_and_add(int64_t times) {
  Register sum[kSums]{}, factor{}, other{};
#pragma GCC unroll 12
  for (Register& s : sum) asm volatile("" : "+x"(s));
  for (int64_t i = 0; i < times; ++i) {
    asm volatile("" : "+x"(factor), "+x"(other));
#pragma GCC unroll 12
    for (Register& s : sum) s += factor * other;
  }
#pragma GCC unroll 12
  for (Register& s : sum) asm volatile("" : "+x"(s));
  return 2.0 * kSums * static_cast<double>(sizeof(Register) / sizeof(float)) * static_cast<double>(times);
}

[[gnu::target("avx512f,avx512bf16"), gnu::noinline]] double multiply_and_add_bf16(int64_t times) {
  using Wide [[gnu::vector_size(64)]] = float;
  Wide sum[kSums]{};
  const Wide factors{};
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 12
    for (Wide& s : sum) asm volatile("vdpbf16ps %1, %1, %0" : "+x"(s) : "x"(factors));
  return 4.0 * kSums * 16 * static_cast<double>(times);
}

}  // namespace trireme
