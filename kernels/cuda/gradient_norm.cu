#include "kernels/cuda/chunks.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/ops/gradient_norm.h"

namespace trireme {
namespace {

struct SquaresRow {
  const float* x;
  int64_t size, chunk;  // number of the first of its chunks
};
static_assert(sizeof(SquaresRow) == 4 * SquaredNorm::kRow);

// parts[b] = the sum of squares of block b's chunks.
__global__ void squares_of_chunks(double* parts, const SquaresRow* rows, int64_t count, int64_t chunks) {
  auto& partial = block_shared<double[32]>();
  double sum = 0;
  for_chunks(rows, count, chunks, [&](const SquaresRow& row, int64_t begin, int64_t end) {
    const auto add = [&](auto n, int64_t i) {
      float x[n];
      load<n>(x, row.x + i);
      for (const float element : x) sum += static_cast<double>(element) * element;
    };
    if (reinterpret_cast<uintptr_t>(row.x) % 16 == 0)
      for_elements<kVector>(begin, end, add);
    else
      for_elements<1>(begin, end, add);
  });
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
__global__ void total_of_squares(float* total, const double* parts, int64_t count) {
  const double sum = sum_of_parts(parts, count);
  if (threadIdx.x != 0) return;
  total[0] = static_cast<float>(sum);
  total[1] = static_cast<float>(sum * SquaredSum::kScale);
}

}  // namespace

void launch(const Cuda& cuda, const SquaredNormTable& op) {
  std::vector<SquaresRow> rows;
  for (const Tensor& x : op.xs) rows.push_back({.x = x.as<float>(), .size = x.size(), .chunk = 0});
  write_table(cuda, op.table, std::move(rows));
}

void launch(const Cuda& cuda, const SquaredNorm& op) {
  int64_t n = 0, chunks = 0;
  for (const Tensor& x : op.xs) n += x.size(), chunks += chunks_of(x.size());
  const int64_t count = parts_of(n);
  auto* parts = static_cast<double*>(scratch(cuda, count * 8));
  start(cuda, grid_of_parts(count), squares_of_chunks, parts, static_cast<const SquaresRow*>(op.table.data()), op.table.dim(0),
        chunks);
  start(cuda, grid_of_parts(1), total_of_squares, op.total.as<float>(), parts, count);
}

}  // namespace trireme
