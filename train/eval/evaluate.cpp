#include "train/eval/evaluate.h"

#include <algorithm>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "kernels/copy.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

// One pass of sequences, in memory of its own.
class PassOfSequences {
 public:
  PassOfSequences(const Sequences& sequences, int64_t rows, int64_t context)
      : sequences_(sequences), rows_(rows), context_(context), ids_(static_cast<size_t>(4 * rows * context)) {}

  // Sequences [pass * rows, (pass + 1) * rows); rows that only fill the pass up have no targets.
  Batch read(int64_t pass) {
    int32_t* field[4];  // tokens, targets, positions, document_start
    for (int64_t i = 0; i < 4; ++i) field[i] = ids_.data() + i * rows_ * context_;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t at = row * context_, number = pass * rows_ + row;
      sequences_.read(std::min(number, sequences_.count - 1), {field[0] + at, field[1] + at, field[2] + at, field[3] + at});
      if (number >= sequences_.count) std::fill_n(field[1] + at, context_, -1);
    }
    const auto tensor = [&](int i) { return Tensor(field[i], Dtype::i32, Place::cpu, {rows_, context_}); };
    return {.tokens = tensor(0), .targets = tensor(1), .positions = tensor(2), .document_start = tensor(3), .valid = 0};
  }
  std::span<const int32_t> targets(int64_t row) const {
    return std::span(ids_).subspan(static_cast<size_t>((rows_ + row) * context_), static_cast<size_t>(context_));
  }

 private:
  const Sequences& sequences_;
  int64_t rows_, context_;
  std::vector<int32_t> ids_;
};

Evaluation evaluate_sequences(TrainState& run, const Sequences& sequences, double tokens_per_byte, const Progressed& progressed) {
  const auto begin = Clock::now();
  const auto count = static_cast<size_t>(sequences.count);
  std::vector<double> losses(count, 0.0), seen(count, 0.0);
  const auto tell = [&](int64_t sequence, std::span<const int32_t> targets, std::span<const float> of_targets) {
    const auto i = static_cast<size_t>(sequence);
    losses[i] = std::accumulate(of_targets.begin(), of_targets.end(), 0.0);
    seen[i] = static_cast<double>(std::ranges::count_if(targets, [](int32_t target) { return target >= 0; }));
  };
  predict(run, sequences, {.tell = tell, .progressed = progressed});
  for (const Comm* group : run.mesh.loss_groups()) losses = sum(*group, losses), seen = sum(*group, seen);
  const double targets = std::accumulate(seen.begin(), seen.end(), 0.0);
  const double loss = targets > 0 ? std::accumulate(losses.begin(), losses.end(), 0.0) / targets : 0;
  return {.loss = loss,
          .bits_per_byte = loss / std::numbers::ln2 * tokens_per_byte,
          .targets = static_cast<int64_t>(targets),
          .bytes = targets / tokens_per_byte,
          .seconds = seconds_since(begin)};
}

template <class Samples>
Evaluation evaluate_samples(TrainState& run, const Samples& samples, int64_t sequences, const Progressed& progressed) {
  const ModelConfig& model = run.config.model;
  const auto read = [&](int64_t sample, const SampleRow& row) {
    samples.read(sample, model.document_mask, model.restart_positions, row);
  };
  const int64_t count = sequences > 0 ? std::min(sequences, samples.samples()) : samples.samples();
  return evaluate_sequences(run, {.count = count, .read = read}, samples.tokens_per_byte(), progressed);
}

}  // namespace

// As many passes on each replica as on every other, for weights may be gathered from all: some are beyond the last sequence.
void predict(TrainState& r, const Sequences& sequences, const PredictHooks& hooks) {
  if (sequences.count == 0) return;
  Stream& compute = r.device.compute();
  const StageShape& shape = r.stage.shape();
  const int64_t rows = shape.rows, context = shape.context;
  const int64_t replica = r.mesh.replica(), replicas = r.mesh.replicas(), round = rows * replicas;
  PassOfSequences input(sequences, rows, context);
  std::vector<float> losses(static_cast<size_t>(rows * context));
  PipelineShape pipeline = pipeline_shape(r.config, replicas);
  pipeline.microbatches = (sequences.count + round - 1) / round;
  const std::vector<Action> actions = make_forward_schedule(pipeline, r.mesh.pp().rank(), shape.slots);
  r.pipeline.begin(actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    r.mesh.mark_progress();
    const int64_t pass = replica + a.microbatch * replicas;
    const Microbatch batch = microbatch(r.launcher.upload(input.read(pass)), 0, rows);
    const Seat seat = r.pipeline.seat(a);
    r.pipeline.before(i);
    r.stage.forward(compute, batch, r.hooks, seat);
    r.pipeline.after(i);
    if (hooks.progressed) hooks.progressed(std::min((a.microbatch + 1) * round, sequences.count));
    if (!r.stage.chunk_at(a.chunk).last) continue;
    const auto fetch = [&](const Tensor& x) {
      copy(compute, Tensor(losses.data(), Dtype::f32, Place::cpu, {x.size()}), x);
      compute.finish();
    };
    r.stage.evaluate(compute, batch, {.z_loss = false, .each = fetch}, seat);
    for (int64_t row = 0; row < rows && pass * rows + row < sequences.count; ++row)
      hooks.tell(pass * rows + row, input.targets(row),
                 std::span(losses).subspan(static_cast<size_t>(row * context), static_cast<size_t>(context)));
  }
}

Evaluation evaluate(TrainState& run, const Corpus& corpus, int64_t sequences, const Progressed& progressed) {
  return evaluate_samples(run, corpus, sequences, progressed);
}

Evaluation evaluate(TrainState& run, const TextStream& stream, int64_t sequences, const Progressed& progressed) {
  return evaluate_samples(run, stream, sequences, progressed);
}

}  // namespace trireme
