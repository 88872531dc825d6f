#include "kernels/ops/embedding.h"

#include <cstring>
#include <type_traits>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// Rows of `table` selected by indices.
struct Rows {
  const int32_t* index;
  int64_t first, count;  // of a shard; indices of other shards select no row

  // Throws Error for an index without a row; in a shard only for negative ones.
  Rows(const Tensor& indices, const char* what, const Tensor& table, bool shard = false, int64_t first = 0)
      : index(indices.as<int32_t>()), first(first), count(table.dim(0)) {
    for (int64_t n = 0; n < indices.size(); ++n)
      require(0 <= index[n] && (shard || index[n] < count),
              text(what, "[", n, "] is ", index[n], ", the table has ", count, " rows"));
  }
  int64_t of(int64_t n) const {
    const int64_t row = index[n] - first;
    return 0 <= row && row < count ? row : -1;
  }
};

template <class T>
void add_rows(const Tensor& dtable, const Rows& index, const Tensor& dx) {
  const int64_t rows = dx.rows(), cols = dx.cols();
  for_columns(rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < rows; ++n) {
      if (index.of(n) < 0) continue;
      float* sum = dtable.as<float>() + index.of(n) * cols;
      const T* row = dx.as<T>() + n * cols;
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) sum[c] += to_float(row[c]);
    }
  });
}

}  // namespace

namespace {

// Tokens of other shards have rows of zeros. -0 becomes 0, as it does when shards are summed.
template <class S, class T>
void add_row(const T* token, const T* position, S* x, int64_t cols) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c)
    x[c] = to<S>((token != nullptr ? to_float(token[c]) : 0.0f) + (position != nullptr ? to_float(position[c]) : 0.0f));
}

}  // namespace

void launch(const Cpu&, const EmbeddingForward& op) {
  const Rows tokens(op.tokens, "tokens", op.table, op.shard, op.first);
  const Rows positions = op.position_table ? Rows(op.positions, "positions", op.position_table) : tokens;
  with_stream_dtype(op.x.dtype(), op.table.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    const int64_t rows = op.x.rows(), cols = op.x.cols();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      S* x = op.x.as<S>() + n * cols;
      const T* token = tokens.of(n) < 0 ? nullptr : op.table.as<T>() + tokens.of(n) * cols;
      const T* position = op.position_table ? op.position_table.as<T>() + positions.of(n) * cols : nullptr;
      if (op.join && token == nullptr) continue;
      if (!op.shard && position == nullptr && std::is_same_v<S, T>)
        std::memcpy(x, token, static_cast<size_t>(cols) * sizeof(T));
      else
        add_row(token, position, x, cols);
    }
  });
}

void launch(const Cpu&, const EmbeddingBackward& op) {
  const Rows tokens(op.tokens, "tokens", op.dtable, op.shard, op.first);
  const Rows positions = op.dposition_table ? Rows(op.positions, "positions", op.dposition_table) : tokens;
  with_dtype(op.dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_rows<T>(op.dtable, tokens, op.dx);
    if (op.dposition_table) add_rows<T>(op.dposition_table, positions, op.dx);
  });
}

}  // namespace trireme
