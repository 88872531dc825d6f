// The emulated matrix products: sums in double, rounded once.
#include "kernels/cuda/products.cuh"

namespace trireme {
namespace {

double read(const void* x, Dtype dtype, int64_t i) {
  return dtype == Dtype::bf16 ? static_cast<float>(static_cast<const Bf16*>(x)[i]) : static_cast<const float*>(x)[i];
}

void compute(const Product& p) {
#pragma omp parallel for schedule(static) if (p.m * p.n * p.k > 100000)
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = p.bias != nullptr ? read(p.bias, p.of_inputs, j) : 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += read(p.a, p.of_inputs, p.transpose_a ? k * p.m + i : i * p.k + k) *
               read(p.b, p.of_inputs, p.transpose_b ? j * p.k + k : k * p.n + j);
      if (p.accumulate) sum += read(p.c, p.of_c, i * p.n + j);
      if (p.of_c == Dtype::bf16)
        static_cast<Bf16*>(p.c)[i * p.n + j] = Bf16(static_cast<float>(sum));
      else
        static_cast<float*>(p.c)[i * p.n + j] = static_cast<float>(sum);
    }
}

}  // namespace

void multiply(const Cuda& cuda, const Product& product) {
  ok(emulation::in_stream(stream_of(cuda), [product] { compute(product); }));
}

}  // namespace trireme
