// A block for each row of logits. Forward reads them once: each thread keeps the largest and the sum of exp() below it, and these
// are combined. Backward reads and writes once more.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/cross_entropy.h"

namespace trireme {
namespace {

constexpr int kMostThreads = 512;
constexpr float kLowest = -3.402823466e38f;

struct Partial {
  float top[32], sum[32];
};

// log(sum exp(x)) = top + rest: apart, so that large logits cost the loss no digits. `sum` is of exp(x - top).
struct TopAndSum {
  float top, sum;
};
__device__ TopAndSum combined(TopAndSum a, TopAndSum b) {
  const float top = max(a.top, b.top);
  return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

// On every thread.
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

__device__ TopAndSum of_row(const float* logits, int64_t classes, Partial& partial) {
  TopAndSum mine{kLowest, 0};
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    const float x = logits[c];
    if (x <= mine.top)
      mine.sum += __expf(x - mine.top);
    else
      mine = {x, mine.sum * __expf(mine.top - x) + 1};
  }
  return over_block(mine, partial);
}

__global__ void forward(float* loss, float* lse, const float* logits, const int32_t* targets, int64_t classes, float z_loss) {
  const int64_t n = blockIdx.x;
  const int32_t target = targets[n];
  if (target >= classes) __trap();
  const TopAndSum row = of_row(logits + n * classes, classes, block_shared<Partial>());
  if (threadIdx.x > 0) return;
  const float rest = logf(row.sum), sum = row.top + rest;
  lse[n] = sum;
  loss[n] = target < 0 ? 0 : row.top - logits[n * classes + target] + rest + z_loss * sum * sum;
}

__global__ void shard_top(float* top, const float* logits, int64_t cols, int64_t valid, bool join) {
  auto& partial = block_shared<float[32]>();
  const int64_t n = blockIdx.x;
  float mine = kLowest;
  for (int64_t c = threadIdx.x; c < valid; c += blockDim.x) mine = max(mine, logits[n * cols + c]);
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) mine = max(mine, partial[warp]);
  top[n] = join ? max(top[n], mine) : mine;
}

__global__ void shard_sums(float* sums, float* at_target, const float* logits, const float* top, const int32_t* targets,
                           int64_t cols, int64_t first, int64_t valid) {
  const int64_t n = blockIdx.x, target = targets[n] - first;
  float sum = 0;
  for (int64_t c = threadIdx.x; c < valid; c += blockDim.x) sum += __expf(logits[n * cols + c] - top[n]);
  sum = block_sum(sum, block_shared<float[32]>());
  if (threadIdx.x > 0) return;
  sums[n] = sum;
  at_target[n] = targets[n] >= 0 && 0 <= target && target < valid ? logits[n * cols + target] : 0;
}

__global__ void shard_loss(float* loss, float* lse, const float* top, const float* sums, const int32_t* targets, int64_t rows,
                           float z_loss) {
  for_packs<1>(rows, [&](auto, int64_t n) {
    const float rest = logf(sums[n]), sum = top[n] + rest;
    lse[n] = sum;
    loss[n] = targets[n] < 0 ? 0 : top[n] - sums[rows + n] + rest + z_loss * sum * sum;
  });
}

struct BackwardRow {
  int64_t cols, classes, first;
  float z_loss, scale;
};

// Each thread writes what it alone has read: dlogits may be logits.
template <class T>
__global__ void backward(T* dlogits, const float* logits, const float* lse, const int32_t* targets, BackwardRow r) {
  const int64_t n = blockIdx.x, target = targets[n] < 0 ? -1 : targets[n] - r.first;
  const float sum = lse[n], factor = targets[n] < 0 ? 0 : r.scale * (1 + 2 * r.z_loss * sum);
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) {
    const float p = c < r.classes && factor != 0 ? __expf(logits[n * r.cols + c] - sum) * factor : 0.0f;
    dlogits[n * r.cols + c] = rounded<T>(c == target && c < r.classes ? p - r.scale : p);
  }
}

// A thread for every fourth class, up to kMostThreads.
Grid rows_grid(const Tensor& logits, int64_t shared) {
  const int64_t threads = (logits.cols() / 4 + 31) / 32 * 32;
  return {.blocks = logits.rows(), .threads = static_cast<int>(std::clamp<int64_t>(threads, 32, kMostThreads)), .shared = shared};
}

}  // namespace

void launch(const Cuda& cuda, const CrossEntropyForward& op) {
  start(cuda, rows_grid(op.logits, sizeof(Partial)), forward, op.loss.as<float>(), op.lse.as<float>(), op.logits.as<float>(),
        op.targets.as<int32_t>(), op.logits.cols(), op.z_loss);
}

void launch(const Cuda& cuda, const ShardTop& op) {
  start(cuda, rows_grid(op.logits, sizeof(float[32])), shard_top, op.top.as<float>(), op.logits.as<float>(), op.logits.cols(),
        op.valid, op.join);
}

void launch(const Cuda& cuda, const ShardSums& op) {
  float* sums = op.sums.as<float>();
  start(cuda, rows_grid(op.logits, sizeof(float[32])), shard_sums, sums, sums + op.logits.rows(), op.logits.as<float>(),
        op.top.as<float>(), op.targets.as<int32_t>(), op.logits.cols(), op.first, op.valid);
}

void launch(const Cuda& cuda, const ShardLoss& op) {
  const int64_t rows = op.top.size();
  start(cuda, grid_for_packs(rows, 1), shard_loss, op.loss.as<float>(), op.lse.as<float>(), op.top.as<float>(), op.sums.as<float>(),
        op.targets.as<int32_t>(), rows, op.z_loss);
}

void launch(const Cuda& cuda, const CrossEntropyBackward& op) {
  const BackwardRow row{.cols = op.logits.cols(),
                        .classes = op.shard ? op.valid : op.logits.cols(),
                        .first = op.shard ? op.first : 0,
                        .z_loss = op.z_loss,
                        .scale = op.scale};
  with_dtype(op.dlogits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    start(cuda, rows_grid(op.logits, 0), backward<T>, op.dlogits.as<T>(), op.logits.as<float>(), op.lse.as<float>(),
          op.targets.as<int32_t>(), row);
  });
}

}  // namespace trireme
