#include "train/step.h"

#include <cmath>

#include "kernels/ops/fill.h"
#include "train/lr.h"

namespace trireme {

Run::Run(const RunConfig& config, const Mesh& mesh, Device& device, const ArenaSizes& sizes)
    : config(config),
      mesh(mesh),
      device(device),
      arenas(device, sizes),
      buckets(mesh.dp(), device, config.parallel.zero),
      stage(config.model,
            {.rows = config.microbatch_rows(mesh.replicas()),
             .context = config.model.context,
             .dtype = dtype_of(config.kernels.dtype),
             .parts = buckets.parts()},
            arenas, device.compute()),
      optimizer(config.train, stage, buckets, arenas),
      loss(arenas.optimizer.take(Dtype::f32, {1})) {}

Microbatch microbatch(const Batch& batch, int64_t first, int64_t rows) {
  const auto flat = [&](const Tensor& t) { return t.slice(first, first + rows).view({rows * t.dim(1)}); };
  return {.rows = rows,
          .context = batch.tokens.dim(1),
          .tokens = flat(batch.tokens),
          .positions = flat(batch.positions),
          .targets = flat(batch.targets),
          .document_start = flat(batch.document_start)};
}

void forward(Run& r, const Microbatch& batch) {
  Stream& compute = r.device.compute();
  r.stage.forward(compute, batch, [&](size_t unit) { r.optimizer.await(compute, unit); });
}

StepResult train_step(Run& r, const Batch& batch, int64_t step) {
  Stream& compute = r.device.compute();
  const int64_t rows = r.stage.shape().rows;
  const LossSum loss{.total = r.loss, .scale = 1.0f / static_cast<float>(batch.valid)};
  const double lr = learning_rate(r.config.train, step);

  run(compute, Fill{.x = r.loss});
  const size_t head = r.stage.units().size() - 1;
  const auto send = [&](size_t unit) {
    r.buckets.send(compute, r.stage.units()[unit].gradients);
    if (unit == head) r.buckets.sum_replicas(compute, r.loss);  // whole since the head's backward
  };
  for (int64_t first = 0; first < batch.tokens.dim(0); first += rows) {
    const Microbatch part = microbatch(batch, first, rows);
    const bool last = first + rows == batch.tokens.dim(0);
    forward(r, part);
    r.stage.backward(compute, part, loss, last ? GradientsDone(send) : GradientsDone());
  }
  r.buckets.finish(compute);
  r.optimizer.update(compute, lr, step + 1);
  if (r.device.place() == Place::none) return {};
  return {.loss = *r.loss.as<float>(), .grad_norm = std::sqrt(*r.optimizer.squared_norm().as<float>()), .lr = lr};
}

}  // namespace trireme
