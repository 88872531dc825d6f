#include "model/attention.h"

#include <cmath>

#include "kernels/ops/attention.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"
#include "model/linear.h"

namespace trireme {
namespace {

// [N, H, D] as rows of D: what the norm of each head sees.
Tensor heads(const Tensor& t) { return t.view({t.dim(0) * t.dim(1), t.dim(2)}); }

float scale(const ModelConfig& config) { return static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_size))); }

struct Views {
  Tensor q, k, v, mixed, document_start;  // [B, T, H, D], [B, S, K, D], [B, S, K, D], [B, T, H, D], [B, T]
};

Views attention_views(const Pass& pass, const AttentionSaved& saved) {
  const Microbatch& b = pass.batch;
  const auto split = [&](const Tensor& t, int64_t count) { return t.view({b.rows, b.context, count, pass.config.head_size}); };
  return {.q = split(saved.q, pass.config.heads),
          .k = saved.cached_k ? saved.cached_k : split(saved.k, pass.config.kv_heads),
          .v = saved.cached_v ? saved.cached_v : split(saved.v, pass.config.kv_heads),
          .mixed = split(saved.mixed, pass.config.heads),
          .document_start = b.document_start ? b.document_start.view({b.rows, b.context}) : Tensor{}};
}

}  // namespace

void AttentionWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  const int64_t q = config.q_width(), kv = config.kv_width();
  visit(
      qkv,
      {.name = name + ".", .shape = {q + 2 * kv, config.width}, .init = Init::normal, .pieces = {{"q", q}, {"k", kv}, {"v", kv}}});
  if (config.family == Family::gpt2 || config.qkv_bias)
    visit(
        qkv_bias,
        {.name = name + ".", .shape = {q + 2 * kv}, .init = Init::zero, .pieces = {{"q_bias", q}, {"k_bias", kv}, {"v_bias", kv}}});
  if (config.qk_norm) {
    visit(q_gain, {.name = name + ".q_gain", .shape = {config.head_size}, .init = Init::one});
    visit(k_gain, {.name = name + ".k_gain", .shape = {config.head_size}, .init = Init::one});
  }
  visit(out, {.name = name + ".out", .shape = {config.width, q}, .init = Init::residual});
  if (config.family == Family::gpt2) visit(out_bias, {.name = name + ".out_bias", .shape = {config.width}, .init = Init::zero});
}

void AttentionSaved::take(Arena& arena, const ModelConfig& config, int64_t rows, int64_t context, Dtype dtype) {
  const int64_t n = rows * context, h = config.heads, kv = config.kv_heads, d = config.head_size;
  q = arena.take(dtype, {n, h, d});
  k = arena.take(dtype, {n, kv, d});
  v = arena.take(dtype, {n, kv, d});
  if (config.qk_norm) {
    q_raw = arena.take(dtype, {n, h, d});
    k_raw = arena.take(dtype, {n, kv, d});
    q_inverse = arena.take(Dtype::f32, {n * h});
    k_inverse = arena.take(Dtype::f32, {n * kv});
  }
  mixed = arena.take(dtype, {n, h * d});
  lse = arena.take(Dtype::f32, {rows, h, context});
}

void attention_forward(Pass& pass, const AttentionWeights& weights, const AttentionSaved& saved, Tensor x, Tensor y) {
  const Frame frame(pass.temporaries);
  const bool qk_norm = pass.config.qk_norm;
  const float eps = static_cast<float>(pass.config.norm_eps);
  // 1. one product for queries, keys and values
  Tensor qkv = pass.temporary(pass.config.q_width() + 2 * pass.config.kv_width());
  linear_forward(pass, weights.qkv, weights.qkv_bias, x, qkv);
  // 2. heads apart, turned by their position (after the norm, where there is one)
  run(pass.stream, SplitHeadsForward{.q = qk_norm ? saved.q_raw : saved.q,
                                     .k = qk_norm ? saved.k_raw : saved.k,
                                     .v = saved.v,
                                     .qkv = qkv,
                                     .positions = pass.batch.positions,
                                     .table = qk_norm ? Tensor{} : pass.rope});
  // 3. QK-norm
  if (qk_norm) {
    run(pass.stream,
        RmsNormForward{
            .y = heads(saved.q), .inv_rms = saved.q_inverse, .x = heads(saved.q_raw), .gain = weights.q_gain, .eps = eps});
    run(pass.stream,
        RmsNormForward{
            .y = heads(saved.k), .inv_rms = saved.k_inverse, .x = heads(saved.k_raw), .gain = weights.k_gain, .eps = eps});
    run(pass.stream, Rotate{.x = saved.q, .positions = pass.batch.positions, .table = pass.rope});
    run(pass.stream, Rotate{.x = saved.k, .positions = pass.batch.positions, .table = pass.rope});
  }
  // 4. attention
  const Views view = attention_views(pass, saved);
  run(pass.stream, AttentionForward{.out = view.mixed,
                                    .lse = saved.lse,
                                    .q = view.q,
                                    .k = view.k,
                                    .v = view.v,
                                    .document_start = view.document_start,
                                    .window = pass.config.window,
                                    .scale = scale(pass.config)});
  // 5. back to the stream
  linear_forward(pass, weights.out, weights.out_bias, saved.mixed, y);
}

void attention_backward(Pass& pass, const AttentionWeights& weights, AttentionWeights& gradients, const AttentionSaved& saved,
                        Tensor x, Tensor dy, Tensor dx) {
  const Frame frame(pass.temporaries);
  const bool qk_norm = pass.config.qk_norm;
  const int64_t n = pass.size(), h = pass.config.heads, kv = pass.config.kv_heads, d = pass.config.head_size;
  // 5.
  Tensor dmixed = pass.temporary(h * d);
  linear_backward(pass, weights.out, gradients.out, gradients.out_bias, saved.mixed, dy, dmixed);
  // 4.
  Tensor dq = pass.temporaries.take(pass.dtype, {n, h, d});
  Tensor dk = pass.temporaries.take(pass.dtype, {n, kv, d});
  Tensor dv = pass.temporaries.take(pass.dtype, {n, kv, d});
  const Views view = attention_views(pass, saved);
  const int64_t b = pass.batch.rows, t = pass.batch.context;
  run(pass.stream, AttentionBackward{.dq = dq.view({b, t, h, d}),
                                     .dk = dk.view({b, t, kv, d}),
                                     .dv = dv.view({b, t, kv, d}),
                                     .dout = dmixed.view({b, t, h, d}),
                                     .out = view.mixed,
                                     .lse = saved.lse,
                                     .q = view.q,
                                     .k = view.k,
                                     .v = view.v,
                                     .document_start = view.document_start,
                                     .window = pass.config.window,
                                     .scale = scale(pass.config)});
  // 3.
  if (qk_norm) {
    run(pass.stream, Rotate{.x = dk, .positions = pass.batch.positions, .table = pass.rope, .backward = true});
    run(pass.stream, Rotate{.x = dq, .positions = pass.batch.positions, .table = pass.rope, .backward = true});
    run(pass.stream, RmsNormBackward{.dx = heads(dk),
                                     .dgain = gradients.k_gain,
                                     .dy = heads(dk),
                                     .x = heads(saved.k_raw),
                                     .gain = weights.k_gain,
                                     .inv_rms = saved.k_inverse});
    run(pass.stream, RmsNormBackward{.dx = heads(dq),
                                     .dgain = gradients.q_gain,
                                     .dy = heads(dq),
                                     .x = heads(saved.q_raw),
                                     .gain = weights.q_gain,
                                     .inv_rms = saved.q_inverse});
  }
  // 2.
  Tensor dqkv = pass.temporary((h + 2 * kv) * d);
  run(pass.stream,
      SplitHeadsBackward{
          .dqkv = dqkv, .dq = dq, .dk = dk, .dv = dv, .positions = pass.batch.positions, .table = qk_norm ? Tensor{} : pass.rope});
  // 1.
  linear_backward(pass, weights.qkv, gradients.qkv, gradients.qkv_bias, x, dqkv, dx);
}

}  // namespace trireme
