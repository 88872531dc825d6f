// Cross entropy with a block for each row of logits. Forward reads them once: each thread keeps the
// maximum and the sum of exp() relative to it, and the block combines these: N V elements. Backward
// reads and writes once more: 2 N V. In place, one block reads a row, reads it again and writes it:
// 2 N V elements, 4 N V bytes of bf16 if the second read hits L2. That starts at the row's end,
// which was read last, since the rows in progress may exceed L2.
#include <cmath>

#include "kernels/cuda/tile.cuh"
#include "kernels/ops/cross_entropy.h"

namespace trireme {
namespace {

constexpr int kMostThreads = 1024;
constexpr float kLowest = -3.402823466e38f;

struct Partial {
  float top[32], sum[32];
};

// log(sum exp(x)) = top + rest, kept apart so that large logits do not cost the loss precision.
// `sum` is of exp(x - top).
struct TopAndSum {
  float top, sum;
};
// Symmetric, so that all threads that combine in another order agree: a compiler that fuses one of the products into the sum
// would round the other alone.
__device__ TopAndSum combined(TopAndSum a, TopAndSum b) {
  const float top = max(a.top, b.top);
  return {top, __fadd_rn(__fmul_rn(a.sum, __expf(a.top - top)), __fmul_rn(b.sum, __expf(b.top - top)))};
}

// Combines over the block; every thread gets the result.
__device__ TopAndSum over_block(TopAndSum mine, Partial& partial) {
  for (int by = 16; by > 0; by /= 2)
    mine = combined(mine, {__shfl_xor_sync(kAllLanes, mine.top, by), __shfl_xor_sync(kAllLanes, mine.sum, by)});
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) partial.top[warp] = mine.top, partial.sum[warp] = mine.sum;
  __syncthreads();
  TopAndSum all{kLowest, 0};
  if (lane < blockDim.x / 32) all = {partial.top[lane], partial.sum[lane]};
  for (int by = 16; by > 0; by /= 2)
    all = combined(all, {__shfl_xor_sync(kAllLanes, all.top, by), __shfl_xor_sync(kAllLanes, all.sum, by)});
  return all;
}

// A row of `cols` columns, of which the first are classes: those from number `first` of all shards.
struct Row {
  uint32_t cols, classes, first;
};
struct LossFactors {
  float z_loss, scale;
  const float* factor;  // of scale; nullptr: 1
};

// Tiles of columns, kPack for each thread: neighbours if rows come in packs (kN = kPack), else one
// of each line of a warp. The assignment depends on the row's length alone. Rows have fewer than
// 2^31 columns, so 32 bits suffice.
__device__ uint32_t tile_cols() { return blockDim.x * kPack; }
template <int kN>
constexpr uint32_t kStride = kN == kPack ? 1 : 32;
template <int kN>
__device__ uint32_t first_column(uint32_t tile) {
  return tile + (kN == kPack ? threadIdx.x * kPack : threadIdx.x / 32 * 32 * kPack + threadIdx.x % 32);
}
// Loads a pack, with minus infinity, which contributes nothing, after the last class.
template <int kN, class T>
__device__ void read_tile(float (&x)[kPack], const T* row, uint32_t tile, uint32_t classes) {
  const uint32_t c = first_column<kN>(tile);
  if constexpr (kN == kPack)
    if (c + kPack <= classes) return load<kPack>(x, row + c);
#pragma unroll
  for (uint32_t k = 0; k < kPack; ++k) x[k] = c + k * kStride<kN> < classes ? to_float((row + c)[k * kStride<kN>]) : -INFINITY;
}
template <int kN, class T>
__device__ void write_tile(T* row, const float (&x)[kPack], uint32_t tile, uint32_t cols) {
  const uint32_t c = first_column<kN>(tile);
  if constexpr (kN == kPack) {
    if (c < cols) store<kPack>(row + c, x);
  } else {
#pragma unroll
    for (uint32_t k = 0; k < kPack; ++k)
      if (c + k * kStride<kN> < cols) (row + c)[k * kStride<kN>] = rounded<T>(x[k]);
  }
}

__device__ inline float largest(const float (&x)[kPack]) {
  float top = x[0];
#pragma unroll
  for (int k = 1; k < kPack; ++k) top = max(top, x[k]);
  return top;
}

template <int kN, class T>
__device__ TopAndSum of_row(const T* row, uint32_t classes, Partial& partial) {
  TopAndSum mine{kLowest, 0};
  for (uint32_t tile = 0; tile < classes; tile += tile_cols()) {
    float x[kPack];
    read_tile<kN>(x, row, tile, classes);
    const float top = max(mine.top, largest(x));
    mine = {top, mine.sum * __expf(mine.top - top)};
#pragma unroll
    for (int k = 0; k < kPack; ++k) mine.sum += __expf(x[k] - top);
  }
  return over_block(mine, partial);
}

template <class T, int kN>
__global__ void __launch_bounds__(kMostThreads, 2)
    cross_entropy_forward(float* loss, float* lse, const T* logits, const int32_t* targets, Row r, float z_loss) {
  const int64_t n = blockIdx.x;
  const int32_t target = targets[n];
  if (target >= static_cast<int64_t>(r.classes)) __trap();
  const TopAndSum row = of_row<kN>(logits + n * r.cols, r.classes, block_shared<Partial>());
  if (threadIdx.x > 0) return;
  const float rest = logf(row.sum), sum = row.top + rest;
  lse[n] = sum;
  loss[n] = target < 0 ? 0 : row.top - to_float(logits[n * r.cols + target]) + rest + z_loss * sum * sum;
}

template <class T, int kN>
__global__ void __launch_bounds__(kMostThreads, 2) shard_top(float* top, const T* logits, Row r, bool join) {
  auto& partial = block_shared<float[32]>();
  const int64_t n = blockIdx.x;
  float mine = kLowest;
  for (uint32_t tile = 0; tile < r.classes; tile += tile_cols()) {
    float x[kPack];
    read_tile<kN>(x, logits + n * r.cols, tile, r.classes);
    mine = max(mine, largest(x));
  }
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) mine = max(mine, partial[warp]);
  top[n] = join ? max(top[n], mine) : mine;
}

template <class T, int kN>
__global__ void __launch_bounds__(kMostThreads, 2)
    shard_sums(float* sums, const T* logits, const float* top, const int32_t* targets, Row r, int64_t classes) {
  const int64_t n = blockIdx.x, target = int64_t{targets[n]} - r.first;
  if (targets[n] >= classes) __trap();
  float sum = 0;
  for (uint32_t tile = 0; tile < r.classes; tile += tile_cols()) {
    float x[kPack];
    read_tile<kN>(x, logits + n * r.cols, tile, r.classes);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum += __expf(x[k] - top[n]);
  }
  sum = block_sum(sum, block_shared<float[32]>());
  if (threadIdx.x > 0) return;
  sums[n] = sum;
  sums[gridDim.x + n] = targets[n] >= 0 && 0 <= target && target < r.classes ? to_float(logits[n * r.cols + target]) : 0;
}

__global__ void shard_loss(float* loss, float* lse, const float* top, const float* sums, const int32_t* targets, int64_t rows,
                           float z_loss) {
  for_packs<1>(rows, [&](auto, int64_t n) {
    const float rest = logf(sums[n]), sum = top[n] + rest;
    lse[n] = sum;
    loss[n] = targets[n] < 0 ? 0 : top[n] - sums[rows + n] + rest + z_loss * sum * sum;
  });
}

// Writes the gradient of an ignored row.
template <int kN, class T>
__device__ void clear_row(T* row, uint32_t cols) {
  const float zeros[kPack] = {};
  for (uint32_t tile = 0; tile < cols; tile += tile_cols()) write_tile<kN>(row, zeros, tile, cols);
}

// Walks the row from its end to its beginning. Each thread writes only what it has read: dlogits
// may be logits.
template <int kN, class D, class T>
__device__ void backward_row(D* dlogits, const T* logits, float lse, uint32_t target, Row r, LossFactors f) {
  const float scale = f.factor == nullptr ? f.scale : f.scale * *f.factor, factor = scale * (1 + 2 * f.z_loss * lse);
  for (uint32_t end = (r.cols + tile_cols() - 1) / tile_cols() * tile_cols(); end > 0; end -= tile_cols()) {
    const uint32_t tile = end - tile_cols(), c = first_column<kN>(tile);
    float x[kPack];
    read_tile<kN>(x, logits, tile, r.classes);
#pragma unroll
    for (int k = 0; k < kPack; ++k) x[k] = __expf(x[k] - lse) * factor;
    if (tile <= target && target < end) {
#pragma unroll
      for (uint32_t k = 0; k < kPack; ++k)
        if (c + k * kStride<kN> == target) x[k] -= scale;
    }
    if (end > r.classes) {
#pragma unroll
      for (uint32_t k = 0; k < kPack; ++k)
        if (c + k * kStride<kN> >= r.classes) x[k] = 0;
    }
    write_tile<kN>(dlogits, x, tile, r.cols);
  }
}

template <class D, class T, int kN>
__global__ void __launch_bounds__(kMostThreads, 2)
    cross_entropy_backward(D* dlogits, const T* logits, const float* lse, const int32_t* targets, Row r, LossFactors f) {
  const int64_t n = blockIdx.x, at = n * r.cols;
  if (targets[n] < 0) return clear_row<kN>(dlogits + at, r.cols);
  backward_row<kN>(dlogits + at, logits + at, lse[n], targets[n] - r.first, r, f);
}

template <class T, int kN>
__global__ void __launch_bounds__(kMostThreads, 2) in_place(float* loss, T* logits, const int32_t* targets, Row r, LossFactors f) {
  const int64_t n = blockIdx.x;
  const int32_t target = targets[n];
  if (target >= static_cast<int64_t>(r.classes)) __trap();
  T* const row = logits + n * r.cols;
  if (target < 0) {
    if (threadIdx.x == 0) loss[n] = 0;
    return clear_row<kN>(row, r.cols);
  }
  const float at_target = to_float(row[target]);  // read by all threads, before the barrier after which they write
  const TopAndSum all = of_row<kN>(row, r.classes, block_shared<Partial>());
  const float rest = logf(all.sum), lse = all.top + rest;
  if (threadIdx.x == 0) loss[n] = all.top - at_target + rest + f.z_loss * lse * lse;
  backward_row<kN>(row, row, lse, target, r, f);
}

// A grid with a thread for every eighth class, up to kMostThreads.
Grid rows_grid(const Tensor& logits, int64_t shared) {
  const int64_t threads = (logits.cols() / kPack + 31) / 32 * 32;
  return {.blocks = logits.rows(), .threads = static_cast<int>(std::clamp<int64_t>(threads, 32, kMostThreads)), .shared = shared};
}

Row row_of(const Tensor& logits, int64_t first, int64_t classes) {
  return {.cols = static_cast<uint32_t>(logits.cols()),
          .classes = static_cast<uint32_t>(classes),
          .first = static_cast<uint32_t>(first)};
}

LossFactors factors_of(const auto& op) {
  return {.z_loss = op.z_loss, .scale = op.scale, .factor = op.factor ? op.factor.template as<float>() : nullptr};
}

// Calls f with a zero of the logits' dtype and the elements of a pack, as constants.
template <class F>
void with_logits(const Tensor& logits, const Tensor& dlogits, const F& f) {
  with_dtype(logits.dtype(), [&](auto zero) {
    with_packs(in_packs({logits, dlogits}) && logits.cols() % kPack == 0, [&](auto pack) { f(zero, pack); });
  });
}

}  // namespace

void launch(const Cuda& cuda, const CrossEntropyForward& op) {
  with_logits(op.logits, {}, [&](auto zero, auto pack) {
    using T = decltype(zero);
    start(cuda, rows_grid(op.logits, sizeof(Partial)), cross_entropy_forward<T, pack>, op.loss.as<float>(), op.lse.as<float>(),
          op.logits.as<T>(), op.targets.as<int32_t>(), row_of(op.logits, 0, op.classes()), op.z_loss);
  });
}

void launch(const Cuda& cuda, const ShardTop& op) {
  with_logits(op.logits, {}, [&](auto zero, auto pack) {
    using T = decltype(zero);
    start(cuda, rows_grid(op.logits, sizeof(float[32])), shard_top<T, pack>, op.top.as<float>(), op.logits.as<T>(),
          row_of(op.logits, 0, op.valid), op.join);
  });
}

void launch(const Cuda& cuda, const ShardSums& op) {
  with_logits(op.logits, {}, [&](auto zero, auto pack) {
    using T = decltype(zero);
    start(cuda, rows_grid(op.logits, sizeof(float[32])), shard_sums<T, pack>, op.sums.as<float>(), op.logits.as<T>(),
          op.top.as<float>(), op.targets.as<int32_t>(), row_of(op.logits, op.first, op.valid), op.classes);
  });
}

void launch(const Cuda& cuda, const ShardLoss& op) {
  const int64_t rows = op.top.size();
  start(cuda, grid_for_packs(rows, 1), shard_loss, op.loss.as<float>(), op.lse.as<float>(), op.top.as<float>(), op.sums.as<float>(),
        op.targets.as<int32_t>(), rows, op.z_loss);
}

void launch(const Cuda& cuda, const CrossEntropyBackward& op) {
  const Row row = row_of(op.logits, op.shard ? op.first : 0, op.classes());
  with_logits(op.logits, op.dlogits, [&](auto zero, auto pack) {
    using T = decltype(zero);
    const auto into = [&]<class D>(D) {
      start(cuda, rows_grid(op.logits, 0), cross_entropy_backward<D, T, pack>, op.dlogits.as<D>(), op.logits.as<T>(),
            op.lse.as<float>(), op.targets.as<int32_t>(), row, factors_of(op));
    };
    op.dlogits.dtype() == Dtype::bf16 ? into(Bf16{}) : into(T{});
  });
}

void launch(const Cuda& cuda, const CrossEntropyInPlace& op) {
  with_logits(op.logits, {}, [&](auto zero, auto pack) {
    using T = decltype(zero);
    start(cuda, rows_grid(op.logits, sizeof(Partial)), in_place<T, pack>, op.loss.as<float>(), op.logits.as<T>(),
          op.targets.as<int32_t>(), row_of(op.logits, 0, op.classes()), factors_of(op));
  });
}

}  // namespace trireme
