// AdamW in one launch for all tensors of a rank: blocks walk chunks, which they look up in a table.
// It reads master, m, v and gradient and writes them and the weight: 34 bytes per element with bf16
// weights. Accesses are 16 bytes and coalesced, so pinned host memory can be updated in place too.
#include <vector>

#include "kernels/cuda/chunks.cuh"
#include "kernels/ops/adamw.h"

namespace trireme {
namespace {

struct AdamWRow {
  Bf16* weight;
  float *master, *m, *v, *grad;
  int64_t size, chunk;
  WholeTensor whole;
  float decay;
  int vectors;  // true if all are aligned to kVector elements
};
static_assert(sizeof(AdamWRow) == 4 * AdamW::kRow);

__global__ void write_schedule(float* schedule, std::array<float, AdamWSchedule::kSize> values) {
  for (int i = 0; i < AdamWSchedule::kSize; ++i) schedule[i] = values[i];
}

struct AdamWFactors {
  float beta1, beta2, eps;
};

template <bool kStochastic>
__global__ void adamw(const AdamWRow* rows, int64_t count, int64_t chunks, const float* gate_numbers, const float* schedule,
                      AdamWFactors f) {
  const float lr = schedule[0], mean_correction = schedule[1], spread_correction = schedule[2];
  const Gate gate = Gate::read(gate_numbers);
  for_chunks(rows, count, chunks, [&](const AdamWRow& row, int64_t begin, int64_t end) {
    const auto update = [&](auto n, int64_t i) {
      float g[n], mean[n], spread[n], w[n];
      if (gate.passes || kStochastic) load<n>(w, row.master + i);
      if (gate.passes) {
        load<n>(g, row.grad + i);
        load<n>(mean, row.m + i);
        load<n>(spread, row.v + i);
        for (int k = 0; k < n; ++k) {
          g[k] *= gate.scale;
          mean[k] = f.beta1 * mean[k] + (1 - f.beta1) * g[k];
          spread[k] = f.beta2 * spread[k] + (1 - f.beta2) * g[k] * g[k];
          w[k] -= lr * (mean[k] * mean_correction / (sqrtf(spread[k] * spread_correction) + f.eps) + row.decay * w[k]);
        }
        store<n>(row.m + i, mean);
        store<n>(row.v + i, spread);
        store<n>(row.master + i, w);
      }
      if (kStochastic && row.weight != nullptr) store_stochastically(row.weight, row.whole, i, w, gate.step);
      if (!kStochastic && gate.passes && row.weight != nullptr) store<n>(row.weight + i, w);
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

void launch(const Cuda& cuda, const AdamWSchedule& op) {
  start(cuda, {.blocks = 1, .threads = 1}, write_schedule, op.schedule.as<float>(), op.values());
}

void launch(const Cuda& cuda, const AdamW& op) {
  int64_t chunks = 0;
  for (const AdamWPart& part : op.parts) chunks += chunks_of(part.master.size());
  const AdamWFactors factors{.beta1 = op.beta1, .beta2 = op.beta2, .eps = op.eps};
  start(cuda, grid_of_chunks(chunks), op.rounding == Rounding::stochastic ? adamw<true> : adamw<false>,
        static_cast<const AdamWRow*>(op.table.data()), op.table.dim(0), chunks, op.gate.as<float>(), op.schedule.as<float>(),
        factors);
}

}  // namespace trireme
