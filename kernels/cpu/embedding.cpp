#include "kernels/ops/embedding.h"

#include <cstring>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// The indices, once each of them is known to be a row of `table`.
const int32_t* checked(const Tensor& indices, const char* what, const Tensor& table) {
  const int32_t* index = indices.as<int32_t>();
  for (int64_t n = 0; n < indices.size(); ++n)
    require(0 <= index[n] && index[n] < table.dim(0),
            text(what, "[", n, "] is ", index[n], ", the table has ", table.dim(0), " rows"));
  return index;
}

template <class T>
void add_rows(const Tensor& dtable, const int32_t* index, const Tensor& dx) {
  const int64_t rows = dx.rows(), cols = dx.cols();
  for_columns(rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < rows; ++n) {
      float* sum = dtable.as<float>() + index[n] * cols;
      const T* row = dx.as<T>() + n * cols;
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) sum[c] += to_float(row[c]);
    }
  });
}

}  // namespace

void launch(const Cpu&, const EmbeddingForward& op) {
  const int32_t* tokens = checked(op.tokens, "tokens", op.table);
  const int32_t* positions = op.position_table ? checked(op.positions, "positions", op.position_table) : nullptr;
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.x.rows(), cols = op.x.cols();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      T* x = op.x.as<T>() + n * cols;
      const T* token = op.table.as<T>() + tokens[n] * cols;
      if (positions == nullptr) {
        std::memcpy(x, token, static_cast<size_t>(cols) * sizeof(T));
        continue;
      }
      const T* position = op.position_table.as<T>() + positions[n] * cols;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) x[c] = to<T>(to_float(token[c]) + to_float(position[c]));
    }
  });
}

void launch(const Cpu&, const EmbeddingBackward& op) {
  const int32_t* tokens = checked(op.tokens, "tokens", op.dtable);
  const int32_t* positions = op.dposition_table ? checked(op.positions, "positions", op.dposition_table) : nullptr;
  with_dtype(op.dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_rows<T>(op.dtable, tokens, op.dx);
    if (positions != nullptr) add_rows<T>(op.dposition_table, positions, op.dx);
  });
}

}  // namespace trireme
