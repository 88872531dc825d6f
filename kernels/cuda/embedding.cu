// Forward copies rows: 2 N C elements. Backward first sorts the places of each token, so that one
// block sums its row in the order of n: the same bits each time, without atomic float additions.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/embedding.h"

namespace trireme {
namespace {

// Rows of a table selected by indices; -1 if another shard has the row.
struct Rows {
  const int32_t* index = nullptr;
  int64_t first = 0, count = 0;
  bool shard = false;

  __device__ int64_t of(int64_t n) const {
    const int64_t row = index[n] - first;
    if (index[n] < 0 || (!shard && row >= count)) __trap();  // the data was checked against the vocabulary when it was opened
    return 0 <= row && row < count ? row : -1;
  }
};

template <class S, class T, int kN>
__global__ void embedding_forward(S* x, const T* table, Rows tokens, const T* position_table, Rows positions, int64_t n,
                                  int64_t cols, bool join) {
  for_packs<kN>(n, [&](auto count, int64_t i) {
    const int64_t row = i / cols, c = i % cols, token = tokens.of(row);
    if (join && token < 0) return;
    float sum[count], more[count];
    for (float& element : sum) element = 0;
    if (token >= 0) load<count>(sum, table + token * cols + c);
    if (position_table != nullptr) {
      load<count>(more, position_table + positions.of(row) * cols + c);
      for (int k = 0; k < count; ++k) sum[k] += more[k];
    }
    store<count>(x + i, sum);
  });
}

// Backward: counts of each row; the start of its places in the list; the places, unsorted; the
// places, sorted.
__global__ void count_places(int* counts, Rows rows, int64_t n) {
  for_packs<1>(n, [&](auto, int64_t i) {
    if (rows.of(i) >= 0) atomicAdd(counts + rows.of(i), 1);
  });
}

// begins[r] = sum of counts before r, for count + 1 rows; resets counts to 0. One block of 1024
// threads, each with a range of rows.
constexpr int kScan = 1024;
__global__ void scan_counts(int* begins, int* counts, int64_t count) {
  auto& before = block_shared<int[kScan]>();
  const int64_t each = (count + kScan - 1) / kScan, begin = min(count, threadIdx.x * each), end = min(count, begin + each);
  int sum = 0;
  for (int64_t r = begin; r < end; ++r) sum += counts[r];
  before[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned by = 1; by < kScan; by *= 2) {
    const int more = threadIdx.x >= by ? before[threadIdx.x - by] : 0;
    __syncthreads();
    before[threadIdx.x] += more;
    __syncthreads();
  }
  int at = threadIdx.x > 0 ? before[threadIdx.x - 1] : 0;
  for (int64_t r = begin; r < end; ++r) {
    begins[r] = at;
    at += counts[r];
    counts[r] = 0;
  }
  if (threadIdx.x == kScan - 1) begins[count] = before[kScan - 1];
}

__global__ void list_places(int* places, int* counts, const int* begins, Rows rows, int64_t n) {
  for_packs<1>(n, [&](auto, int64_t i) {
    const int64_t row = rows.of(i);
    if (row >= 0) places[begins[row] + atomicAdd(counts + row, 1)] = static_cast<int>(i);
  });
}

// Each place counts the smaller places of its row: few, except for rows of very frequent tokens.
__global__ void sort_places(int* sorted, const int* places, const int* begins, Rows rows, int64_t count) {
  for_packs<1>(begins[count], [&](auto, int64_t i) {
    const int place = places[i];
    const int64_t row = rows.of(place);
    int smaller = 0;
    for (int k = begins[row]; k < begins[row + 1]; ++k) smaller += places[k] < place;
    sorted[begins[row] + smaller] = place;
  });
}

// dtable[r] += the rows of dx at the places of r. A block for each row of the table.
template <class T, int kN>
__global__ void add_rows(float* dtable, const T* dx, const int* sorted, const int* begins, int64_t cols) {
  const int64_t row = blockIdx.x;
  const int begin = begins[row], end = begins[row + 1];
  if (begin == end) return;
  for (int64_t c = threadIdx.x * kN; c < cols; c += int64_t{blockDim.x} * kN) {
    float sum[kN], more[kN];
    load<kN>(sum, dtable + row * cols + c);
    for (int k = begin; k < end; ++k) {
      load<kN>(more, dx + int64_t{sorted[k]} * cols + c);
      for (int i = 0; i < kN; ++i) sum[i] += more[i];
    }
    store<kN>(dtable + row * cols + c, sum);
  }
}

Rows rows_of(const Tensor& indices, const Tensor& table, bool shard = false, int64_t first = 0) {
  if (!table) return {};
  return {.index = indices.as<int32_t>(), .first = first, .count = table.dim(0), .shard = shard};
}

void embedding_backward(const Cuda& cuda, const Tensor& dtable, const Rows& rows, const Tensor& dx) {
  const int64_t n = dx.rows(), cols = dx.cols();
  auto* counts = static_cast<int*>(scratch(cuda, (2 * rows.count + 1 + 2 * n) * 4));
  int *begins = counts + rows.count, *places = begins + rows.count + 1, *sorted = places + n;
  const Grid grid = grid_for_packs(n, 1);
  ok(cudaMemsetAsync(counts, 0, static_cast<size_t>(rows.count) * 4, stream_of(cuda)));
  start(cuda, grid, count_places, counts, rows, n);
  start(cuda, {.blocks = 1, .threads = kScan, .shared = sizeof(int[kScan])}, scan_counts, begins, counts, rows.count);
  start(cuda, grid, list_places, places, counts, begins, rows, n);
  start(cuda, grid, sort_places, sorted, places, begins, rows, rows.count);
  with_dtype(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_packs(cols % kPack == 0 && in_packs({dtable, dx}), [&](auto pack) {
      const int threads = static_cast<int>(std::clamp<int64_t>((cols / pack + 31) / 32 * 32, 32, kThreads));
      start(cuda, {.blocks = rows.count, .threads = threads}, add_rows<T, pack>, dtable.as<float>(), dx.as<T>(), sorted, begins,
            cols);
    });
  });
}

}  // namespace

void launch(const Cuda& cuda, const EmbeddingForward& op) {
  const Rows tokens = rows_of(op.tokens, op.table, op.shard, op.first), positions = rows_of(op.positions, op.position_table);
  with_stream_dtype(op.x.dtype(), op.table.dtype(), [&](auto zero_x, auto zero) {
    using S = decltype(zero_x);
    using T = decltype(zero);
    const int64_t n = op.x.size(), cols = op.x.cols();
    with_packs(cols % kPack == 0 && in_packs({op.x, op.table, op.position_table}), [&](auto pack) {
      start(cuda, grid_for_packs(n, pack), embedding_forward<S, T, pack>, op.x.as<S>(), op.table.as<T>(), tokens,
            op.position_table ? op.position_table.as<T>() : nullptr, positions, n, cols, op.join);
    });
  });
}

void launch(const Cuda& cuda, const EmbeddingBackward& op) {
  embedding_backward(cuda, op.dtable, rows_of(op.tokens, op.dtable, op.shard, op.first), op.dx);
  if (op.dposition_table) embedding_backward(cuda, op.dposition_table, rows_of(op.positions, op.dposition_table), op.dx);
}

}  // namespace trireme
