#include "kernels/cuda/tile.cuh"
#include "kernels/ops/low_rank.h"

namespace trireme {
namespace {

struct BasisColumns {
  float* x;
  int64_t rows, cols;
};

// The product of two columns, on every thread of the block.
__device__ double column_product(const BasisColumns& p, int64_t a, int64_t b, double* partial) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < p.rows; i += kThreads)
    sum += static_cast<double>(p.x[i * p.cols + a]) * static_cast<double>(p.x[i * p.cols + b]);
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  sum = partial[0];
  __syncthreads();
  return sum;
}

// Takes the earlier columns out of column `col`, and scales it. False if little is left.
__device__ bool complete_column(const BasisColumns& p, int64_t col, double* partial) {
  const double before = sqrt(column_product(p, col, col, partial));
  for (int64_t c = 0; c < col; ++c) {
    const double times = column_product(p, col, c, partial);
    for (int64_t i = threadIdx.x; i < p.rows; i += kThreads)
      p.x[i * p.cols + col] -= static_cast<float>(times * static_cast<double>(p.x[i * p.cols + c]));
    __syncthreads();
  }
  const double after = sqrt(column_product(p, col, col, partial));
  if (after <= 1e-5 * before) return false;
  for (int64_t i = threadIdx.x; i < p.rows; i += kThreads)
    p.x[i * p.cols + col] = static_cast<float>(static_cast<double>(p.x[i * p.cols + col]) / after);
  __syncthreads();
  return true;
}

// One block, for a matrix of few columns.
__global__ void __launch_bounds__(kThreads) orthonormalize(BasisColumns p) {
  auto& partial = block_shared<double[kThreads]>();
  for (int64_t c = 0; c < p.cols; ++c) {
    if (complete_column(p, c, partial)) continue;
    for (int64_t i = threadIdx.x; i < p.rows; i += kThreads) p.x[i * p.cols + c] = i == substitute_row(c, p.rows) ? 1.0f : 0.0f;
    __syncthreads();
    complete_column(p, c, partial);
  }
}

// y = p q^T, or next = x - p q^T. A thread has some elements of y.
__global__ void __launch_bounds__(kThreads)
    low_rank(float* y, Bf16* next, const float* x, BasisColumns p, const float* q, int64_t cols) {
  const int64_t n = p.rows * cols, stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    const float *a = p.x + i / cols * p.cols, *b = q + i % cols * p.cols;
    float sum = 0;
    for (int64_t k = 0; k < p.cols; ++k) sum += a[k] * b[k];
    if (next != nullptr)
      next[i] = rounded<Bf16>(x[i] - sum);
    else
      y[i] = sum;
  }
}

BasisColumns columns_of(const Tensor& x) { return {.x = x.as<float>(), .rows = x.rows(), .cols = x.cols()}; }

}  // namespace

void launch(const Cuda& cuda, const Orthonormalize& op) {
  start(cuda, {.blocks = 1, .threads = kThreads, .shared = sizeof(double[kThreads])}, orthonormalize, columns_of(op.x));
}

void launch(const Cuda& cuda, const LowRank& op) {
  start(cuda, grid_for_packs(op.y.size(), 1), low_rank, op.y.as<float>(), nullptr, nullptr, columns_of(op.p), op.q.as<float>(),
        op.y.cols());
}

void launch(const Cuda& cuda, const LowRankRest& op) {
  start(cuda, grid_for_packs(op.x.size(), 1), low_rank, nullptr, op.next.as<Bf16>(), op.x.as<float>(), columns_of(op.p),
        op.q.as<float>(), op.x.cols());
}

}  // namespace trireme
