#include "model/norm.h"

#include "kernels/ops/fill.h"
#include "kernels/ops/layernorm.h"
#include "kernels/ops/rmsnorm.h"

namespace trireme {

void NormWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  const auto spec = [&](const char* weight, Init init) {
    return WeightSpec{.name = name + weight, .shape = {config.width}, .init = init, .pieces = {}, .shared = Shared::rows};
  };
  visit(gain, spec(".gain", Init::one));
  if (config.family == Family::gpt2) visit(bias, spec(".bias", Init::zero));
}

void NormSaved::take(Arena& arena, const ModelConfig& config, const Shape& shape, Tensor y) {
  const int64_t rows = shape.rows;
  if (shape.keeps_sum) sum = arena.take(shape.residual, {rows, config.width});
  this->y = y ? y : arena.take(shape.dtype, {rows, config.width});
  inverse = arena.take(Dtype::f32, {rows});
  if (config.family == Family::gpt2) mean = arena.take(Dtype::f32, {rows});
}

void norm_forward(Pass& pass, const NormWeights& weights, const NormSaved& saved, const Residual& in) {
  const float eps = static_cast<float>(pass.config.norm_eps);
  const Tensor sum = in.delta ? saved.sum : Tensor{};
  if (pass.config.family == Family::gpt2)
    run(pass.stream, LayerNormForward{.y = saved.y,
                                      .mean = saved.mean,
                                      .inv_std = saved.inverse,
                                      .sum = sum,
                                      .x = in.x,
                                      .gain = weights.gain,
                                      .bias = weights.bias,
                                      .residual = in.delta,
                                      .eps = eps});
  else
    run(pass.stream,
        RmsNormForward{
            .y = saved.y, .inv_rms = saved.inverse, .sum = sum, .x = in.x, .gain = weights.gain, .residual = in.delta, .eps = eps});
}

namespace {

// `rows`: of this rank's own.
void backward_rows(Pass& pass, const Trained<NormWeights>& norm, const NormSaved& saved, const NormBackward& from,
                   const RowRange& rows) {
  if (pass.config.family == Family::gpt2)
    run(pass.stream, LayerNormBackward{.dx = rows.of(saved.sum),
                                       .dgain = norm.gradients.gain,
                                       .dbias = norm.gradients.bias,
                                       .dy = rows.of(from.dy),
                                       .x = rows.of(saved.sum),
                                       .gain = norm.weights.gain,
                                       .mean = rows.of(saved.mean),
                                       .inv_std = rows.of(saved.inverse),
                                       .dsum = rows.of(from.dsum)});
  else
    run(pass.stream, RmsNormBackward{.dx = rows.of(saved.sum),
                                     .dgain = norm.gradients.gain,
                                     .dy = rows.of(from.dy),
                                     .x = rows.of(saved.sum),
                                     .gain = norm.weights.gain,
                                     .inv_rms = rows.of(saved.inverse),
                                     .dsum = rows.of(from.dsum)});
}

}  // namespace

void norm_backward(Pass& pass, const Trained<NormWeights>& norm, const NormSaved& saved, const NormBackward& from) {
  if (!pass.tensor.exact) return backward_rows(pass, norm, saved, from, {.begin = 0, .end = pass.own()});
  // Sums as many parts of the batch's rows as there are shards, each separately.
  const Frame frame(pass.temporaries);
  const int64_t rows = pass.size() / pass.tensor.count, parts = pass.own() / rows, c = pass.config.width;
  const Tensor gains = pass.temporaries.take(Dtype::f32, {parts, c});
  const Tensor biases = norm.gradients.bias ? pass.temporaries.take(Dtype::f32, {parts, c}) : Tensor{};
  run(pass.stream, Fill{.x = gains});
  if (biases) run(pass.stream, Fill{.x = biases});
  for (int64_t i = 0; i < parts; ++i) {
    const auto row = [&](const Tensor& t) { return t ? t.slice(i, i + 1).view({c}) : t; };
    NormWeights part{.gain = row(gains), .bias = row(biases)};
    backward_rows(pass, {.weights = norm.weights, .gradients = part}, saved, from, {.begin = i * rows, .end = (i + 1) * rows});
  }
  run(pass.stream, SumParts{.y = norm.gradients.gain, .parts = gains, .accumulate = true});
  if (biases) run(pass.stream, SumParts{.y = norm.gradients.bias, .parts = biases, .accumulate = true});
}

}  // namespace trireme
