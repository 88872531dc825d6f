#include "kernels/ops/low_rank.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/simd.h"

namespace trireme {
namespace {

double product(const float* a, const float* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

float product_f32(const float* a, const float* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The columns of a matrix, one after the other.
struct BasisColumns {
  std::vector<float> x;
  int64_t rows;
  float* column(int64_t c) { return x.data() + c * rows; }
  void subtract(int64_t from, int64_t col, double times) {
    float *y = column(from), *taken = column(col);
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) y[i] -= static_cast<float>(times * static_cast<double>(taken[i]));
  }
  // Takes the earlier columns out of column `col`, and scales it. False if little is left.
  bool complete(int64_t col) {
    float* y = column(col);
    const double before = std::sqrt(product(y, y, rows));
    for (int64_t c = 0; c < col; ++c) subtract(col, c, product(y, column(c), rows));
    const double after = std::sqrt(product(y, y, rows));
    if (after <= 1e-5 * before) return false;
    for (int64_t i = 0; i < rows; ++i) y[i] = static_cast<float>(static_cast<double>(y[i]) / after);
    return true;
  }
};

// y [cols, rows] = x [rows, cols], transposed.
void transpose(float* y, const float* x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) y[c * rows + r] = x[r * cols + c];
}

// Calls f(element's index, dot product of its rows of p and q) for each element of [rows, cols].
template <class F>
void for_products(const Tensor& p, const Tensor& q, const F& f) {
  const int64_t rank = p.cols(), cols = q.rows();
  const float *left = p.as<float>(), *right = q.as<float>();
  for_blocks(p.rows() * cols, cols, [&](int64_t begin, int64_t) {
    const float* const a = left + begin / cols * rank;
    for (int64_t c = 0; c < cols; ++c) f(begin + c, product_f32(a, right + c * rank, rank));
  });
}

}  // namespace

void launch(const Cpu&, const Orthonormalize& op) {
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  BasisColumns columns{.x = std::vector<float>(static_cast<size_t>(rows * cols)), .rows = rows};
  transpose(columns.x.data(), op.x.as<float>(), rows, cols);
  for (int64_t c = 0; c < cols; ++c) {
    if (columns.complete(c)) continue;
    std::fill_n(columns.column(c), rows, 0.0f);
    columns.column(c)[substitute_row(c, rows)] = 1;
    columns.complete(c);
  }
  transpose(op.x.as<float>(), columns.x.data(), cols, rows);
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
