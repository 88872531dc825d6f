#include "train/step/step.h"

#include <algorithm>
#include <cmath>

#include "kernels/copy.h"
#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "train/step/lr.h"

namespace trireme {

float read_number(Stream& stream, const Tensor& x) {
  float value = 0;
  copy(stream, Tensor(&value, Dtype::f32, stream.place() == Place::none ? Place::none : Place::cpu, {1}), x);
  stream.finish();
  return value;
}

Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows) {
  const auto flat = [&](const Tensor& t) { return t.slice(first, first + rows).view({rows * t.dim(1)}); };
  return {.rows = rows,
          .context = batch.tokens.dim(1),
          .tokens = flat(batch.tokens),
          .positions = flat(batch.positions),
          .targets = flat(batch.targets),
          .document_start = flat(batch.document_start)};
}

namespace {

double norm_of(const SquaredSum& sum) {
  return sum.large() ? std::sqrt(static_cast<double>(sum.scaled)) / SquaredSum::kRootOfScale : std::sqrt(sum.plain);
}

// Enqueues one action of the schedule.
void run_action(TrainState& r, const Action& a, const Microbatch& batch, const LossSum& loss) {
  Stream& compute = r.device.compute();
  const Seat seat = r.pipeline.seat(a);
  const StreamPart part(compute, a.kind == ActionKind::forward ? "forward" : "backward", a.microbatch);
  r.mesh.mark_progress();
  switch (a.kind) {
    case ActionKind::forward:
      return r.stage.forward(compute, batch, r.hooks, seat);
    case ActionKind::backward:
      return r.stage.backward(compute, batch, {.loss = loss, .which = Backward::whole}, r.hooks, seat);
    case ActionKind::backward_input:
      return r.stage.backward(compute, batch, {.loss = loss, .which = Backward::input}, r.hooks, seat);
    case ActionKind::backward_weight:
      return r.stage.backward(compute, batch, {.loss = loss, .which = Backward::weight}, r.hooks, seat);
  }
}

// Returns microbatch `number` of the replica's batch.
Microbatch microbatch_of_step(const TrainState& r, const Batch& batch, int64_t number) {
  const int64_t rows = r.stage.shape().rows;
  Microbatch part = microbatch(batch, number * rows, rows);
  part.number = number;
  part.last = (number + 1) * rows == batch.tokens.dim(0);
  part.gradients_leave = part.last || r.sync.reduces_each();
  return part;
}

// Copies whose gradients are not summed, with parallel.local_steps. Each takes its part of the batch for the whole.
float lone_copies(const TrainState& r) { return r.sync.local() ? static_cast<float>(r.mesh.copies()) : 1; }

double learning_rate_of(const TrainState& r, int64_t step) {
  const ParallelConfig& parallel = r.config.parallel;
  const bool alone = parallel.local() && parallel.apart_at(step + 1);
  return learning_rate(r.config.train, step) * (alone ? parallel.local_lr : 1);
}

// Without valid targets, loss and gradients are 0.
void weigh_targets(TrainState& r, const Batch& batch) {
  const float valid = static_cast<float>(std::max<int64_t>(batch.valid, 1));
  run(r.device.compute(), Fill{.x = r.loss_factor, .value = lone_copies(r) / valid});
}

// The mean of the copies' losses, from their sum.
void average_loss(TrainState& r) {
  Stream& compute = r.device.compute();
  run(compute, Cast{.y = r.loss_sum, .x = r.loss});
  run(compute, Fill{.x = r.loss});
  run(compute, SumInto{.total = r.loss, .x = r.loss_sum, .scale = 1 / lone_copies(r)});
}

// Enqueues the same launches in every step. Only the contents of memory differ: the batch and the
// numbers of the schedule.
void compute_step(TrainState& r, const Batch& batch) {
  Stream& compute = r.device.compute();
  const int64_t microbatches = batch.tokens.dim(0) / r.stage.shape().rows;
  const LossSum loss{.total = r.loss, .factor = r.loss_factor};

  // 1. forward and backward; each unit's gradients are sent once they are complete
  run(compute, Fill{.x = r.loss});
  const std::vector<Action>& actions = r.actions(microbatches);
  r.pipeline.begin(actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    r.pipeline.before(i);
    run_action(r, actions[i], microbatch_of_step(r, batch, actions[i].microbatch), loss);
    r.pipeline.after(i);
    if (r.after) r.after(actions[i]);
  }
  // 2. sums of gradients and loss over the replicas
  const bool exact_loss = r.loss_tree && r.stage.has_last();
  if (exact_loss) r.sync.total_of_tree(r.loss_tree, microbatches);
  r.sync.finish(microbatches);
  if (exact_loss) run(compute, Cast{.y = r.loss, .x = r.loss_tree.slice(0, 1)});
  if (r.loss_sum) average_loss(r);
  if (r.mesh.pp().size() > 1) run(r.mesh.pp(), compute, AllReduce{.x = r.loss});  // 0 except on the last stage
  // 3. update
  r.mesh.mark_progress();
  const StreamPart part(compute, "optimizer", r.step + 1);
  r.optimizer.update(compute, r.loss);
}

}  // namespace

void begin_step(TrainState& r, const Batch& of_host, int64_t step, const StepLimits& limits) {
  r.step = step;
  r.sync.begin(step + 1);
  Stream& compute = r.device.compute();
  const Batch batch = r.launcher.upload(of_host);
  r.optimizer.schedule(compute, learning_rate_of(r, step), step + 1, limits);
  weigh_targets(r, batch);
  r.launcher.launch(r.config.parallel.apart_at(step + 1), [&] { compute_step(r, batch); });
  r.optimizer.meet(compute, step + 1);
  r.launcher.send(step, r.loss, r.optimizer.squared_norm(), limits);
}

StepResult end_step(TrainState& r, int64_t step) {
  if (r.device.place() == Place::none) return {};
  const StepLauncher::Results results = r.launcher.wait(step);
  return {.loss = results.loss,
          .squares = results.squared_norm,
          .grad_norm = norm_of(results.squared_norm),
          .lr = learning_rate_of(r, step),
          .limits = results.limits,
          .updated = results.limits.pass(results.squared_norm, results.loss, static_cast<float>(r.config.train.clip))};
}

StepResult train_step(TrainState& r, const Batch& batch, int64_t step) {
  begin_step(r, batch, step);
  return end_step(r, step);
}

StepResult rehearse_step(TrainState& r, const Batch& batch, int64_t step) {
  r.step = step;
  r.sync.begin(step + 1);
  Stream& compute = r.device.compute();
  r.optimizer.schedule(compute, learning_rate_of(r, step), step + 1, {.squared_norm = -1, .loss = -1});
  weigh_targets(r, batch);
  compute_step(r, r.launcher.upload(batch));
  compute.finish();
  const Tensor squares = r.optimizer.squared_norm();
  const SquaredSum sum{.plain = read_number(compute, squares.slice(0, 1)), .scaled = read_number(compute, squares.slice(1, 2))};
  return {.loss = read_number(compute, r.loss), .squares = sum, .grad_norm = norm_of(sum), .lr = 0, .updated = false};
}

}  // namespace trireme
