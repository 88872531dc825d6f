#include "model/mlp.h"

#include "kernels/ops/gelu.h"
#include "kernels/ops/swiglu.h"
#include "model/linear.h"

namespace trireme {
namespace {

int64_t hidden_width(const ModelConfig& config) { return config.family == Family::gpt2 ? config.ffn : 2 * config.ffn; }

}  // namespace

void MlpWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  const int64_t c = config.width, f = config.ffn;
  if (config.family == Family::gpt2) {
    visit(up, {.name = name + ".up", .shape = {f, c}, .init = Init::normal});
    visit(up_bias, {.name = name + ".up_bias", .shape = {f}, .init = Init::zero});
  } else {
    visit(up, {.name = name + ".", .shape = {2 * f, c}, .init = Init::normal, .pieces = {{"gate", f}, {"up", f}}});
  }
  visit(down, {.name = name + ".down", .shape = {c, f}, .init = Init::residual});
  if (config.family == Family::gpt2) visit(down_bias, {.name = name + ".down_bias", .shape = {c}, .init = Init::zero});
}

void MlpSaved::take(Arena& arena, const ModelConfig& config, int64_t size, Dtype dtype) {
  hidden = arena.take(dtype, {size, hidden_width(config)});
  active = arena.take(dtype, {size, config.ffn});
}

void mlp_forward(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, Tensor x, Tensor y) {
  // 1. up
  linear_forward(pass, weights.up, weights.up_bias, x, saved.hidden);
  // 2. activation
  if (pass.config.family == Family::gpt2)
    run(pass.stream, GeluForward{.y = saved.active, .x = saved.hidden});
  else
    run(pass.stream, SwiGluForward{.y = saved.active, .x = saved.hidden});
  // 3. down
  linear_forward(pass, weights.down, weights.down_bias, saved.active, y);
}

void mlp_backward(Pass& pass, const MlpWeights& weights, MlpWeights& gradients, const MlpSaved& saved, Tensor x, Tensor dy,
                  Tensor dx) {
  const Frame frame(pass.temporaries);
  // 3.
  Tensor dactive = pass.temporary(pass.config.ffn);
  linear_backward(pass, weights.down, gradients.down, gradients.down_bias, saved.active, dy, dactive);
  // 2.
  Tensor dhidden = pass.config.family == Family::gpt2 ? dactive : pass.temporary(2 * pass.config.ffn);
  if (pass.config.family == Family::gpt2)
    run(pass.stream, GeluBackward{.dx = dhidden, .dy = dactive, .x = saved.hidden});
  else
    run(pass.stream, SwiGluBackward{.dx = dhidden, .dy = dactive, .x = saved.hidden});
  // 1.
  linear_backward(pass, weights.up, gradients.up, gradients.up_bias, x, dhidden, dx);
}

}  // namespace trireme
