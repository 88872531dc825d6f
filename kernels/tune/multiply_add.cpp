#include "kernels/tune/multiply_add.h"

#include "kernels/amx.h"

namespace trireme {

namespace {

// Independent sums: enough to fill two pipelines of latency 4, and fewer than the registers.
constexpr int kSums = 12;

using Quarter [[gnu::vector_size(16)]] = float;
using Half [[gnu::vector_size(32)]] = float;
using Whole [[gnu::vector_size(64)]] = float;

// FLOPs of products in so many lanes.
double flops(int64_t times, int products) { return 2.0 * products * static_cast<double>(times); }

}  // namespace

double multiply_and_add_plain(int64_t times) {
  constexpr int kEach = kSums / 2;
  Quarter product[kEach]{}, sum[kEach]{};
  const Quarter factor{};
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 6
    for (int s = 0; s < kEach; ++s) asm volatile("mulps %2, %0\n\taddps %2, %1" : "+x"(product[s]), "+x"(sum[s]) : "x"(factor));
  return flops(times, kEach * 4);
}

[[gnu::target("avx2,fma")]] double multiply_and_add_avx2(int64_t times) {
  Half sum[kSums]{};
  const Half factor{};
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 12
    for (Half& s : sum) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(s) : "x"(factor));
  return flops(times, kSums * 8);
}

[[gnu::target("avx512f")]] double multiply_and_add_avx512(int64_t times) {
  Whole sum[kSums]{};
  const Whole factor{};
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 12
    for (Whole& s : sum) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(s) : "x"(factor));
  return flops(times, kSums * 16);
}

[[gnu::target("avx512f")]] double multiply_and_add_bf16(int64_t times) {
  Whole sum[kSums]{};
  const Whole factors{};
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 12
    for (Whole& s : sum) asm volatile("vdpbf16ps %1, %1, %0" : "+x"(s) : "x"(factors));
  return flops(times, kSums * 32);
}

double multiply_and_add_amx(int64_t times) {
  static constexpr AmxShapes kShapes = AmxShapes::whole();
  AmxTiles tiles(kShapes);
  tiles.clear<0>(), tiles.clear<1>(), tiles.clear<2>(), tiles.clear<3>(), tiles.clear<4>(), tiles.clear<5>();
  for (int64_t i = 0; i < times; ++i) {
    tiles.multiply<0, 4, 5>(), tiles.multiply<1, 4, 5>();
    tiles.multiply<2, 4, 5>(), tiles.multiply<3, 4, 5>();
  }
  return flops(times, 4 * 16 * 16 * 32);
}

}  // namespace trireme
