#include "kernels/cuda/chunks.cuh"
#include "kernels/ops/round_weights.h"

namespace trireme {
namespace {

struct RoundRow {
  Bf16* weight;
  const float* master;
  int64_t size, chunk;
  WholeTensor whole;
  int64_t vectors;  // true if both are aligned to kVector elements
};
static_assert(sizeof(RoundRow) == 4 * RoundWeights::kRow);

__global__ void round_weights(const RoundRow* rows, int64_t count, int64_t chunks, int64_t step) {
  for_chunks(rows, count, chunks, [&](const RoundRow& row, int64_t begin, int64_t end) {
    const auto round = [&](auto n, int64_t i) {
      float w[n];
      load<n>(w, row.master + i);
      store_stochastically(row.weight, row.whole, i, w, step);
    };
    if (row.vectors)
      for_elements<kVector>(begin, end, round);
    else
      for_elements<1>(begin, end, round);
  });
}

}  // namespace

void launch(const Cuda& cuda, const RoundWeightsTable& op) {
  std::vector<RoundRow> rows;
  for (const RoundedPart& part : op.parts)
    rows.push_back({.weight = part.weight.as<Bf16>(),
                    .master = part.master.as<float>(),
                    .size = part.master.size(),
                    .chunk = 0,
                    .whole = part.whole,
                    .vectors = in_packs({part.master}) && reinterpret_cast<uintptr_t>(part.weight.data()) % (2 * kVector) == 0});
  write_table(cuda, op.table, std::move(rows));
}

void launch(const Cuda& cuda, const RoundWeights& op) {
  int64_t chunks = 0;
  for (const RoundedPart& part : op.parts) chunks += chunks_of(part.master.size());
  start(cuda, grid_of_chunks(chunks), round_weights, static_cast<const RoundRow*>(op.table.data()), op.table.dim(0), chunks,
        op.step);
}

}  // namespace trireme
