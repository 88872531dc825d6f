#include "kernels/ops/low_rank.h"

#include <cmath>

#include "kernels/cpu/simd.h"

namespace trireme {
namespace {

struct BasisColumns {
  float* x;
  int64_t rows, cols;
  double product(int64_t a, int64_t b) const {
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += static_cast<double>(x[i * cols + a]) * static_cast<double>(x[i * cols + b]);
    return sum;
  }
  void subtract(int64_t from, int64_t col, double times) const {
    for (int64_t i = 0; i < rows; ++i) x[i * cols + from] -= static_cast<float>(times * static_cast<double>(x[i * cols + col]));
  }
  // Takes the earlier columns out of column `col`, and scales it. False if little is left.
  bool complete(int64_t col) const {
    const double before = std::sqrt(product(col, col));
    for (int64_t c = 0; c < col; ++c) subtract(col, c, product(col, c));
    const double after = std::sqrt(product(col, col));
    if (after <= 1e-5 * before) return false;
    for (int64_t i = 0; i < rows; ++i) x[i * cols + col] = static_cast<float>(static_cast<double>(x[i * cols + col]) / after);
    return true;
  }
};

// Calls f(element's index, dot product of its rows of p and q) for each element of [rows, cols].
template <class F>
void for_products(const Tensor& p, const Tensor& q, const F& f) {
  const int64_t rank = p.cols(), cols = q.rows();
  const float *left = p.as<float>(), *right = q.as<float>();
  for_blocks(p.rows() * cols, cols, [&](int64_t begin, int64_t) {
    const float* const a = left + begin / cols * rank;
    for (int64_t c = 0; c < cols; ++c) {
      float sum = 0;
      for (int64_t k = 0; k < rank; ++k) sum += a[k] * right[c * rank + k];
      f(begin + c, sum);
    }
  });
}

}  // namespace

void launch(const Cpu&, const Orthonormalize& op) {
  const BasisColumns columns{.x = op.x.as<float>(), .rows = op.x.rows(), .cols = op.x.cols()};
  for (int64_t c = 0; c < columns.cols; ++c) {
    if (columns.complete(c)) continue;
    for (int64_t i = 0; i < columns.rows; ++i) columns.x[i * columns.cols + c] = i == substitute_row(c, columns.rows) ? 1.0f : 0.0f;
    columns.complete(c);
  }
}

void launch(const Cpu&, const LowRank& op) {
  auto* y = op.y.as<float>();
  for_products(op.p, op.q, [&](int64_t i, float product) { y[i] = product; });
}

void launch(const Cpu&, const LowRankRest& op) {
  auto* next = op.next.as<Bf16>();
  const float* x = op.x.as<float>();
  for_products(op.p, op.q, [&](int64_t i, float product) { next[i] = to<Bf16>(x[i] - product); });
}

}  // namespace trireme
