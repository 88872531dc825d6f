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

constexpr int64_t kPassesOfStage = 16;  // passes between reports of progress; draining the pipeline for one costs 6 % of the time

// The sequences of one pass, in memory of their own.
class PassOfSequences {
 public:
  PassOfSequences(const Sequences& sequences, int64_t rows, int64_t context)
      : sequences_(sequences), rows_(rows), context_(context), ids_(static_cast<size_t>(4 * rows * context)) {}

  // Reads sequences [pass * rows, (pass + 1) * rows). Rows after the last sequence have no targets.
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

// Runs passes of the pipeline over the sequences.
class Passes {
 public:
  Passes(TrainState& run, const Sequences& sequences, const PredictHooks& hooks)
      : run_(run),
        sequences_(sequences),
        hooks_(hooks),
        rows_(run.stage.shape().rows),
        context_(run.stage.shape().context),
        input_(sequences, rows_, context_),
        losses_(static_cast<size_t>(rows_ * context_)) {}

  // Passes [first, first + count) of each replica.
  void run(int64_t first, int64_t count) {
    PipelineShape pipeline = pipeline_shape(run_.config, run_.mesh.replicas());
    pipeline.microbatches = count;
    const std::vector<Action> actions =
        make_forward_schedule(pipeline, run_.mesh.pp().rank(), run_.stage.shape().room.slots);
    run_.pipeline.begin(actions);
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      run_.mesh.mark_progress();
      const int64_t pass = run_.mesh.replica() + (first + a.microbatch) * run_.mesh.replicas();
      const Microbatch batch = microbatch(run_.launcher.upload(input_.read(pass)), 0, rows_);
      const Seat seat = run_.pipeline.seat(a);
      run_.pipeline.before(i);
      run_.stage.forward(run_.device.compute(), batch, run_.hooks, seat);
      run_.pipeline.after(i);
      if (run_.stage.chunk_at(a.chunk).last) losses_of(pass, batch, seat);
      run_.stage.forget(seat);
    }
  }

 private:
  void losses_of(int64_t pass, const Microbatch& batch, const Seat& seat) {
    Stream& compute = run_.device.compute();
    const auto fetch = [&](const Tensor& x) {
      copy(compute, Tensor(losses_.data(), Dtype::f32, Place::cpu, {x.size()}), x);
      compute.finish();
    };
    run_.stage.evaluate(compute, batch, {.z_loss = false, .each = fetch}, seat);
    for (int64_t row = 0; row < rows_ && pass * rows_ + row < sequences_.count; ++row)
      hooks_.report(pass * rows_ + row, input_.targets(row),
                    std::span(losses_).subspan(static_cast<size_t>(row * context_), static_cast<size_t>(context_)));
  }

  TrainState& run_;
  const Sequences& sequences_;
  const PredictHooks& hooks_;
  const int64_t rows_, context_;
  PassOfSequences input_;
  std::vector<float> losses_;
};

Evaluation evaluate_sequences(TrainState& run, const Sequences& sequences, double tokens_per_byte, const Progressed& progressed) {
  const auto begin = Clock::now();
  const auto count = static_cast<size_t>(sequences.count);
  std::vector<double> losses(count, 0.0), seen(count, 0.0);
  const auto report = [&](int64_t sequence, std::span<const int32_t> targets, std::span<const float> of_targets) {
    const auto i = static_cast<size_t>(sequence);
    losses[i] = std::accumulate(of_targets.begin(), of_targets.end(), 0.0);
    seen[i] = static_cast<double>(std::ranges::count_if(targets, [](int32_t target) { return target >= 0; }));
  };
  predict(run, sequences, {.report = report, .progressed = progressed});
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
  const int64_t count = evaluated_sequences(sequences, samples.samples());
  return evaluate_sequences(run, {.count = count, .read = read}, samples.tokens_per_byte(), progressed);
}

}  // namespace

void predict(TrainState& r, const Sequences& sequences, const PredictHooks& hooks) {
  if (sequences.count == 0) return;
  const int64_t rows = r.stage.shape().rows, replicas = r.mesh.replicas(), round = rows * replicas, stages = r.mesh.pp().size();
  // Weights may be gathered from all replicas, so each makes the same number of passes, some after the last sequence.
  const int64_t passes = (sequences.count + round - 1) / round, part = stages == 1 ? 1 : kPassesOfStage * stages;
  Passes of_part(r, sequences, hooks);
  for (int64_t first = 0; first < passes; first += part) {
    const int64_t end = std::min(first + part, passes);
    of_part.run(first, end - first);
    if (hooks.progressed) hooks.progressed(std::min(end * round, sequences.count));
  }
}

Evaluation evaluate(TrainState& run, const Corpus& corpus, int64_t sequences, const Progressed& progressed) {
  return evaluate_samples(run, corpus, sequences, progressed);
}

Evaluation evaluate(TrainState& run, const TextStream& stream, int64_t sequences, const Progressed& progressed) {
  return evaluate_samples(run, stream, sequences, progressed);
}

}  // namespace trireme
