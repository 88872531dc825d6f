// Replaces what is made of x86's instructions, on other processors.
#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/pair_product.h"
#include "kernels/tune/multiply_add.h"
#include "kernels/x86_features.h"

namespace trireme {
namespace {

[[noreturn]] void refuse() { throw Error("this processor has no such instructions"); }

}  // namespace

bool has_avx512_bf16_instructions() { return false; }
bool may_use_amx() { return false; }

const PackedTile& bf16_tile() { return plain_tile(Dtype::bf16); }
const PackedTile& amx_tile() { return plain_tile(Dtype::bf16); }

template <Walk, Start>
void multiply_pairs(const PairProduct&) {
  refuse();
}
template void multiply_pairs<Walk::rows, Start::zero>(const PairProduct&);
template void multiply_pairs<Walk::rows, Start::sum>(const PairProduct&);
template void multiply_pairs<Walk::columns, Start::sum>(const PairProduct&);
template void multiply_pairs<Walk::columns, Start::scaled>(const PairProduct&);
void round_to_pairs(const float*, int64_t, int64_t, Word*) { refuse(); }
void round_to_rows(const float*, int64_t, Word*) { refuse(); }

double multiply_and_add_plain(int64_t times) {
  using Vector [[gnu::vector_size(16)]] = float;
  constexpr int kSums = 16;  // enough for four pipelines of latency 4, and half of the registers
  Vector sum[kSums]{};
  asm volatile("" : "+m"(sum));  // the compiler is not to know that they are zero
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 16
    for (Vector& s : sum) s += s * s;
  asm volatile("" ::"m"(sum));
  return 2.0 * 4 * kSums * static_cast<double>(times);
}

double multiply_and_add_avx2(int64_t) { refuse(); }
double multiply_and_add_avx512(int64_t) { refuse(); }
double multiply_and_add_bf16(int64_t) { refuse(); }
double multiply_and_add_amx(int64_t) { refuse(); }

}  // namespace trireme
