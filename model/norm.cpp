#include "model/norm.h"

#include "kernels/ops/layernorm.h"
#include "kernels/ops/rmsnorm.h"

namespace trireme {

void NormWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  visit(gain, {.name = name + ".gain", .shape = {config.width}, .init = Init::one});
  if (config.family == Family::gpt2) visit(bias, {.name = name + ".bias", .shape = {config.width}, .init = Init::zero});
}

void NormSaved::take(Arena& arena, const ModelConfig& config, int64_t size, Dtype dtype) {
  sum = arena.take(dtype, {size, config.width});
  y = arena.take(dtype, {size, config.width});
  inverse = arena.take(Dtype::f32, {size});
  if (config.family == Family::gpt2) mean = arena.take(Dtype::f32, {size});
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

void norm_backward(Pass& pass, const NormWeights& weights, NormWeights& gradients, const NormSaved& saved, Tensor dy, Tensor d,
                   bool fresh) {
  const Tensor dsum = fresh ? Tensor{} : d;
  if (pass.config.family == Family::gpt2)
    run(pass.stream, LayerNormBackward{.dx = d,
                                       .dgain = gradients.gain,
                                       .dbias = gradients.bias,
                                       .dy = dy,
                                       .x = saved.sum,
                                       .gain = weights.gain,
                                       .mean = saved.mean,
                                       .inv_std = saved.inverse,
                                       .dsum = dsum});
  else
    run(pass.stream, RmsNormBackward{.dx = d,
                                     .dgain = gradients.gain,
                                     .dy = dy,
                                     .x = saved.sum,
                                     .gain = weights.gain,
                                     .inv_rms = saved.inverse,
                                     .dsum = dsum});
}

}  // namespace trireme
