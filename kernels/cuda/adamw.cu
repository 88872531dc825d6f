// One launch for all tensors of a rank: blocks walk chunks of them, which they find by a table. AdamW reads master, m, v and
// gradient, writes them and the weight: 34 bytes for each element with bf16 weights, in accesses of 16 bytes whose neighbours'
// lie next to them, so that memory of the host, too, can be worked on where it is.
#include <vector>

#include "kernels/cuda/sums.cuh"
#include "kernels/ops/adamw.h"

namespace trireme {
namespace {

constexpr int64_t kChunk = 4096;
constexpr int kVector = 4;  // elements: 16 bytes of f32

struct SquaresRow {
  const float* x;
  int64_t size, chunk;  // the first of its chunks
};
struct AdamWRow {
  Bf16* weight;
  float *master, *m, *v, *grad;
  int64_t size, chunk;
  WholeTensor whole;
  float decay;
  int vectors;  // whether all lie at multiples of kVector elements
};
static_assert(sizeof(SquaresRow) == 4 * SquaredNorm::kRow && sizeof(AdamWRow) == 4 * AdamW::kRow);

int64_t chunks_of(int64_t size) { return (size + kChunk - 1) / kChunk; }

// The host has to wait: `rows` goes.
template <class Row>
void write_table(const Cuda& cuda, const Tensor& table, std::vector<Row>&& rows) {
  int64_t chunk = 0;
  for (Row& row : rows) row.chunk = std::exchange(chunk, chunk + chunks_of(row.size));
  copy_bytes(*cuda.lane, table.data(), rows.data(), table.bytes());
  finish_lane(*cuda.lane);
}

// body(row, begin, end) for the chunks of this block, in order.
template <class Row, class Body>
__device__ void for_chunks(const Row* rows, int64_t count, int64_t chunks, const Body& body) {
  int64_t at = 0;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    while (at + 1 < count && rows[at + 1].chunk <= chunk) ++at;
    const Row row = rows[at];  // what is written does not change it
    const int64_t begin = (chunk - row.chunk) * kChunk;
    body(row, begin, min(row.size, begin + kChunk));
  }
}

// body(count, i) for the elements of this thread of a chunk: for kN neighbours at a time and, at the end, for single ones.
template <int kN, class Body>
__device__ void for_elements(int64_t begin, int64_t end, const Body& body) {
  const int64_t packs = (end - begin) / kN;
  for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) body(std::integral_constant<int, kN>{}, begin + i * kN);
  if constexpr (kN > 1)
    for (int64_t i = begin + packs * kN + threadIdx.x; i < end; i += blockDim.x) body(std::integral_constant<int, 1>{}, i);
}

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
  if (threadIdx.x == 0) *total = static_cast<float>(sum);
}

__global__ void write_schedule(float* schedule, std::array<float, AdamWSchedule::kSize> values) {
  for (int i = 0; i < AdamWSchedule::kSize; ++i) schedule[i] = values[i];
}

template <int kN>
__device__ void store_stochastically(const AdamWRow& row, int64_t i, const float (&w)[kN], int64_t step) {
  RandomBits bits(row.whole, i, step);
  Pack<Bf16, kN> pack;
#pragma unroll
  for (int k = 0; k < kN; ++k) pack.at[k] = rounded_stochastically(w[k], bits.next());
  *reinterpret_cast<Pack<Bf16, kN>*>(row.weight + i) = pack;
}

__global__ void round_weights(const AdamWRow* rows, int64_t count, int64_t chunks, int64_t step) {
  for_chunks(rows, count, chunks, [&](const AdamWRow& row, int64_t begin, int64_t end) {
    const auto round = [&](auto n, int64_t i) {
      float w[n];
      load<n>(w, row.master + i);
      store_stochastically(row, i, w, step);
    };
    if (row.vectors)
      for_elements<kVector>(begin, end, round);
    else
      for_elements<1>(begin, end, round);
  });
}

struct AdamWFactors {
  float beta1, beta2, eps, clip;
};

template <bool kStochastic>
__global__ void adamw(const AdamWRow* rows, int64_t count, int64_t chunks, const float* squared_norm, const float* schedule,
                      const float* loss, AdamWFactors f) {
  const float norm = sqrtf(*squared_norm), lr = schedule[0], mean_correction = schedule[1], spread_correction = schedule[2];
  const int64_t step = AdamWSchedule::step_of(schedule);
  const bool passes = AdamWSchedule::limits_of(schedule).pass(*squared_norm, loss == nullptr ? 0 : *loss);
  const float rescale = f.clip > 0 ? min(1.0f, f.clip / norm) : 1.0f;
  for_chunks(rows, count, chunks, [&](const AdamWRow& row, int64_t begin, int64_t end) {
    const auto update = [&](auto n, int64_t i) {
      float g[n], mean[n], spread[n], w[n];
      if (passes || kStochastic) load<n>(w, row.master + i);
      if (passes) {
        load<n>(g, row.grad + i);
        load<n>(mean, row.m + i);
        load<n>(spread, row.v + i);
        for (int k = 0; k < n; ++k) {
          g[k] *= rescale;
          mean[k] = f.beta1 * mean[k] + (1 - f.beta1) * g[k];
          spread[k] = f.beta2 * spread[k] + (1 - f.beta2) * g[k] * g[k];
          w[k] -= lr * (mean[k] * mean_correction / (sqrtf(spread[k] * spread_correction) + f.eps) + row.decay * w[k]);
        }
        store<n>(row.m + i, mean);
        store<n>(row.v + i, spread);
        store<n>(row.master + i, w);
      }
      if (kStochastic && row.weight != nullptr) store_stochastically(row, i, w, step);
      if (!kStochastic && passes && row.weight != nullptr) store<n>(row.weight + i, w);
      for (float& element : g) element = 0;
      store<n>(row.grad + i, g);
    };
    if (row.vectors)
      for_elements<kVector>(begin, end, update);
    else
      for_elements<1>(begin, end, update);
  });
}

}  // namespace

void launch(const Cuda& cuda, const SquaredNormTable& op) {
  std::vector<SquaresRow> rows;
  for (const Tensor& x : op.xs) rows.push_back({.x = x.as<float>(), .size = x.size(), .chunk = 0});
  write_table(cuda, op.table, std::move(rows));
}

void launch(const Cuda& cuda, const AdamWTable& op) {
  std::vector<AdamWRow> rows;
  for (const AdamWPart& part : op.parts)
    rows.push_back({.weight = part.weight ? part.weight.as<Bf16>() : nullptr,
                    .master = part.master.as<float>(),
                    .m = part.m.as<float>(),
                    .v = part.v.as<float>(),
                    .grad = part.grad.as<float>(),
                    .size = part.master.size(),
                    .chunk = 0,
                    .whole = part.whole,
                    .decay = part.decay,
                    .vectors = in_packs({part.master, part.m, part.v, part.grad}) &&
                               reinterpret_cast<uintptr_t>(part.weight.data()) % (2 * kVector) == 0});
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

void launch(const Cuda& cuda, const AdamWSchedule& op) {
  start(cuda, {.blocks = 1, .threads = 1}, write_schedule, op.schedule.as<float>(), op.values());
}

namespace {

struct Chunks {
  int64_t count;
  Grid grid;
  explicit Chunks(std::span<const AdamWPart> parts) : count(0), grid{.blocks = 0, .threads = kThreads} {
    for (const AdamWPart& part : parts) count += chunks_of(part.master.size());
    grid.blocks = std::min<int64_t>(count, int64_t{multiprocessors()} * 8);
  }
};

const AdamWRow* rows_of(const Tensor& table) { return static_cast<const AdamWRow*>(table.data()); }

}  // namespace

void launch(const Cuda& cuda, const AdamW& op) {
  const Chunks chunks(op.parts);
  const AdamWFactors factors{.beta1 = op.beta1, .beta2 = op.beta2, .eps = op.eps, .clip = op.clip};
  start(cuda, chunks.grid, op.rounding == Rounding::stochastic ? adamw<true> : adamw<false>, rows_of(op.table), op.table.dim(0),
        chunks.count, op.squared_norm.as<float>(), op.schedule.as<float>(), op.loss ? op.loss.as<float>() : nullptr, factors);
}

void launch(const Cuda& cuda, const RoundWeights& op) {
  const Chunks chunks(op.parts);
  start(cuda, chunks.grid, round_weights, rows_of(op.table), op.table.dim(0), chunks.count, op.step);
}

}  // namespace trireme
