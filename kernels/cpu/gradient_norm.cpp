#include "kernels/ops/gradient_norm.h"

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

double squares(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

void launch(const Cpu&, const SquaredNorm& op) {
  float* total = op.total.as<float>();
  total[0] = total[1] = 0;
  for (const Tensor& tensor : op.xs) {
    const float* x = tensor.as<float>();
    const double sum = sum_of_blocks(tensor.size(), [&](int64_t begin, int64_t end) { return squares(x + begin, end - begin); });
    total[0] += static_cast<float>(sum);
    total[1] += static_cast<float>(sum * SquaredSum::kScale);
  }
}

void launch(const Cpu&, const SquaredNormTable&) {}

}  // namespace trireme
