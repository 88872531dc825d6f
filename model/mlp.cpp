#include "model/mlp.h"

#include "kernels/ops/fill.h"
#include "kernels/ops/gelu.h"
#include "kernels/ops/swiglu.h"

namespace trireme {
namespace {

int64_t hidden_width(const ModelConfig& config) { return config.family == Family::gpt2 ? config.ffn : 2 * config.ffn; }
bool fuses_gelu_backward(const Pass& pass) { return pass.fused_products && !pass.fp8 && pass.config.family == Family::gpt2; }
const Tensor& gradient_of_hidden(const MlpSaved& saved, const MlpKept& kept) { return kept.dhidden ? kept.dhidden : saved.hidden; }

}  // namespace

void MlpWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const Shard& shard) {
  const int64_t c = config.width, f = config.ffn / shard.count, first = shard.index * f;
  const auto rows = [&](const char* piece) { return WeightPiece{.name = piece, .rows = f, .first = first, .all = config.ffn}; };
  if (config.family == Family::gpt2) {
    visit(up, {.name = name + ".up", .shape = {f, c}, .init = Init::normal, .pieces = {rows("")}});
    visit(up_bias, {.name = name + ".up_bias", .shape = {f}, .init = Init::zero, .pieces = {rows("")}});
  } else {
    visit(up, {.name = name + ".", .shape = {2 * f, c}, .init = Init::normal, .pieces = {rows("gate"), rows("up")}});
  }
  visit(
      down,
      {.name = name + ".down", .shape = {c, f}, .init = Init::residual, .pieces = {}, .first_col = first, .all_cols = config.ffn});
  if (config.family == Family::gpt2 && shard.index == 0)
    visit(down_bias, {.name = name + ".down_bias", .shape = {c}, .init = Init::zero});
}

void MlpSaved::take(Arena& arena, const ModelConfig& config, int64_t size, Dtype dtype, Tensor active) {
  hidden = arena.take(dtype, {size, hidden_width(config)});
  this->active = active ? active : arena.take(dtype, {size, config.ffn});
}

void mlp_activate(Pass& pass, const MlpSaved& saved) {
  if (pass.config.family == Family::gpt2)
    run(pass.stream, GeluForward{.y = saved.active, .x = saved.hidden});
  else
    run(pass.stream, SwiGluForward{.y = saved.active, .x = saved.hidden});
}

namespace {

// Steps 1 and 2 for some rows.
void up_and_activate(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, Tensor x) {
  const LinearWeight up{.w = weights.up, .bias = weights.up_bias, .rounded = weights.rounded_up};
  if (pass.fused_gelu && !pass.fp8 && pass.config.family == Family::gpt2)
    return linear_forward(pass, up, {.x = x, .y = saved.active}, saved.hidden);
  linear_forward(pass, up, {.x = x, .y = saved.hidden});
  mlp_activate(pass, saved);
}

}  // namespace

void mlp_forward_up(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, GatheredRows& x) {
  x.each(GatheredRows::First::own,
         [&](const RowRange& rows, const Tensor& some) { up_and_activate(pass, weights, saved.of(rows), some); });
}

void mlp_forward(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, const ShardForward& rows) {
  const LinearWeight down{.w = weights.down, .bias = weights.down_bias, .rounded = weights.rounded_down};
  const Tensor y = rows.y.part(rows.shard);
  rows.x.each(GatheredRows::First::lowest, [&](const RowRange& some, const Tensor& x) {
    const MlpSaved here = saved.of(some);
    // 1. up, 2. activation
    up_and_activate(pass, weights, here, x);
    // 3. down
    linear_forward(pass, down, {.x = here.active, .y = some.of(y)});
    rows.y.written(rows.shard, some);
  });
}

MlpKept MlpKept::take(Pass& pass) {
  return {.down = keep_gradient(pass, pass.config.width),
          .up = keep_gradient(pass, hidden_width(pass.config)),
          .dhidden = fuses_gelu_backward(pass) ? pass.temporary(pass.config.ffn) : Tensor{}};
}

namespace {

// Steps 3 and 2 backward for some rows of dy: the gradient of saved.hidden, in its place or kept apart.
void backward_to_hidden(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, Tensor dy, const MlpKept& keep) {
  const LinearWeight down{.w = weights.down, .rounded = weights.rounded_down};
  if (keep.dhidden) return linear_backward_input(pass, down, {.dy = dy, .dx = keep.dhidden, .keep = keep.down}, saved.hidden);
  const Frame frame(pass.temporaries);
  const Tensor dactive = pass.temporaries.take(pass.dtype, {dy.dim(0), pass.config.ffn});
  linear_backward_input(pass, down, {.dy = dy, .dx = dactive, .keep = keep.down},
                        fuses_gelu_backward(pass) ? saved.hidden : Tensor{});
  if (fuses_gelu_backward(pass))  // in halves nothing is kept but what is saved
    run(pass.stream, Cast{.y = saved.hidden, .x = dactive});
  else if (pass.config.family == Family::gpt2)
    run(pass.stream, GeluBackward{.dx = saved.hidden, .dy = dactive, .x = saved.hidden});
  else
    run(pass.stream, SwiGluBackward{.dx = saved.hidden, .dy = dactive, .x = saved.hidden});
}

}  // namespace

void mlp_backward_input(Pass& pass, const MlpWeights& weights, const MlpSaved& saved, const ShardBackwardInput<MlpKept>& rows) {
  const LinearWeight up{.w = weights.up, .rounded = weights.rounded_up};
  const Tensor dx = rows.dx.part(rows.shard);
  rows.dy.each(GatheredRows::First::lowest, [&](const RowRange& some, const Tensor& dy) {
    const MlpSaved here = saved.of(some);
    const MlpKept keep = rows.keep.of(some);
    backward_to_hidden(pass, weights, here, dy, keep);
    // 1.
    linear_backward_input(pass, up, {.dy = gradient_of_hidden(here, keep), .dx = some.of(dx), .keep = keep.up});
    rows.dx.written(rows.shard, some);
  });
}

void mlp_backward_weight(Pass& pass, MlpWeights& gradients, const MlpSaved& saved, const PartBackwardWeight<MlpKept>& rows) {
  // 3.
  linear_backward_weight(pass, {.w = gradients.down, .bias = gradients.down_bias},
                         {.dy = rows.dy, .x = saved.active, .kept = rows.kept.down});
  // 1.
  linear_backward_weight(pass, {.w = gradients.up, .bias = gradients.up_bias},
                         {.dy = gradient_of_hidden(saved, rows.kept), .x = rows.x, .kept = rows.kept.up});
}

}  // namespace trireme
