#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <numbers>
#include <numeric>
#include <vector>

#include "kernels/ops/fill.h"
#include "parallel/agree.h"

namespace trireme {

Evaluation evaluate(Run& r, const Corpus& corpus, int64_t sequences) {
  const auto begin = std::chrono::steady_clock::now();
  Stream& compute = r.device.compute();
  const int64_t rows = r.stage.shape().rows, context = r.stage.shape().context, size = rows * context;
  const int64_t count = sequences > 0 ? std::min(sequences, corpus.samples()) : corpus.samples();
  std::vector<int32_t> ids(static_cast<size_t>(4 * size));
  int32_t* field[4];  // tokens, targets, positions, document_start
  for (int i = 0; i < 4; ++i) field[i] = ids.data() + i * size;
  const auto tensor = [&](int i) { return Tensor(field[i], Dtype::i32, Place::cpu, {rows, context}); };
  const Batch batch{.tokens = tensor(0), .targets = tensor(1), .positions = tensor(2), .document_start = tensor(3), .valid = 0};

  // Each replica its part of the passes; the losses are added up in the order of the passes, whoever computed them.
  const int64_t passes = (count + rows - 1) / rows;
  std::vector<double> losses(static_cast<size_t>(passes), 0.0), seen(static_cast<size_t>(passes), 0.0);
  for (int64_t pass = r.mesh.replica(); pass < passes; pass += r.mesh.replicas()) {
    const int64_t first = pass * rows;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * context, sample = std::min(first + row, count - 1);
      corpus.read(sample, r.config.model.document_mask, r.config.model.restart_positions, field[0] + at, field[1] + at,
                  field[2] + at, field[3] + at);
      if (first + row >= count) std::fill_n(field[1] + at, context, -1);  // rows that only fill the batch up
    }
    const auto valid = std::count_if(field[1], field[1] + size, [](int32_t target) { return target >= 0; });
    const Microbatch part = microbatch(batch, 0, rows);
    run(compute, Fill{.x = r.loss});
    forward(r, part);
    r.stage.evaluate(compute, part, {.total = r.loss});
    losses[static_cast<size_t>(pass)] = static_cast<double>(*r.loss.as<float>());
    seen[static_cast<size_t>(pass)] = static_cast<double>(valid);
  }
  losses = sum(r.mesh.dp(), losses);
  seen = sum(r.mesh.dp(), seen);
  const double targets = std::accumulate(seen.begin(), seen.end(), 0.0);
  const double loss = targets > 0 ? std::accumulate(losses.begin(), losses.end(), 0.0) / targets : 0;
  const double tokens_per_byte =
      static_cast<double>(corpus.tokens()) / static_cast<double>(std::max<int64_t>(1, corpus.text_bytes()));
  return {.loss = static_cast<float>(loss),
          .bits_per_byte = static_cast<float>(loss / std::numbers::ln2 * tokens_per_byte),
          .targets = static_cast<int64_t>(targets),
          .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

}  // namespace trireme
