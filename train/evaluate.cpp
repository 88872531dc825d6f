#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <numbers>
#include <numeric>
#include <vector>

#include "kernels/ops/fill.h"
#include "parallel/agree.h"

namespace trireme {

namespace {

// One pass of held-out sequences, in memory of its own.
class HeldOut {
 public:
  HeldOut(const RunConfig& config, const Corpus& corpus, int64_t rows, int64_t count)
      : config_(config), corpus_(corpus), rows_(rows), count_(count), ids_(static_cast<size_t>(4 * size())) {}

  // Sequences [pass * rows, (pass + 1) * rows); rows that only fill the batch up have no targets.
  Batch read(int64_t pass) {
    const int64_t context = corpus_.context();
    int32_t* field[4];  // tokens, targets, positions, document_start
    for (int i = 0; i < 4; ++i) field[i] = ids_.data() + i * size();
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t at = row * context, sample = std::min(pass * rows_ + row, count_ - 1);
      corpus_.read(sample, config_.model.document_mask, config_.model.restart_positions, field[0] + at, field[1] + at,
                   field[2] + at, field[3] + at);
      if (pass * rows_ + row >= count_) std::fill_n(field[1] + at, context, -1);
    }
    const auto tensor = [&](int i) { return Tensor(field[i], Dtype::i32, Place::cpu, {rows_, context}); };
    return {.tokens = tensor(0), .targets = tensor(1), .positions = tensor(2), .document_start = tensor(3), .valid = 0};
  }
  int64_t valid() const {
    const auto targets = ids_.begin() + size();
    return std::count_if(targets, targets + size(), [](int32_t target) { return target >= 0; });
  }

 private:
  int64_t size() const { return rows_ * corpus_.context(); }

  const RunConfig& config_;
  const Corpus& corpus_;
  int64_t rows_, count_;
  std::vector<int32_t> ids_;
};

}  // namespace

Evaluation evaluate(Run& r, const Corpus& corpus, int64_t sequences) {
  const auto begin = std::chrono::steady_clock::now();
  Stream& compute = r.device.compute();
  const StageShape& shape = r.stage.shape();
  const int64_t count = sequences > 0 ? std::min(sequences, corpus.samples()) : corpus.samples();
  HeldOut held_out(r.config, corpus, shape.rows, count);

  // Each replica its part of the passes, as many as every other, for weights may be gathered from all: some are beyond the last and
  // have no targets. The losses are added up in the order of the passes, whoever computed them.
  const int64_t replica = r.mesh.replica(), replicas = r.mesh.replicas(), round = shape.rows * replicas;
  const int64_t rounds = (count + round - 1) / round, passes = rounds * replicas;
  std::vector<double> losses(static_cast<size_t>(passes), 0.0), seen(static_cast<size_t>(passes), 0.0);
  PipelineShape pipeline = pipeline_shape(r.config, replicas);
  pipeline.microbatches = rounds;
  const std::vector<Action> actions = make_forward_schedule(pipeline, r.mesh.pp().rank(), shape.slots);
  r.pipeline.begin(actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    r.mesh.got_on();
    const auto pass = static_cast<size_t>(replica + a.microbatch * replicas);
    const Microbatch batch = microbatch(r.on_device(held_out.read(static_cast<int64_t>(pass))), 0, shape.rows);
    const Seat seat = r.pipeline.seat(a);
    r.pipeline.before(i);
    r.stage.forward(compute, batch, r.passing, seat);
    r.pipeline.after(i);
    if (!r.stage.piece(a.chunk).last) continue;
    run(compute, Fill{.x = r.loss});
    r.stage.evaluate(compute, batch, {.total = r.loss}, seat);
    losses[pass] = static_cast<double>(read_number(compute, r.loss));
    seen[pass] = static_cast<double>(held_out.valid());
  }
  for (const Comm* comm : {&r.mesh.dp(), &r.mesh.pp()}) losses = sum(*comm, losses), seen = sum(*comm, seen);
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
