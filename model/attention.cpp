#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/attention.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"

namespace trireme {
namespace {

// Views [N, H, D] as rows of D, on which the norm of each head works.
Tensor heads(const Tensor& t) { return t.view({t.dim(0) * t.dim(1), t.dim(2)}); }

float scale(const ModelConfig& config) { return static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_size))); }

// True if attention reads the heads where the projection writes them, or wrote them for a backward.
bool reads_together(const ModelConfig& config, const AttentionSaved& saved) { return !config.qk_norm && saved.cached.empty(); }

struct Views {
  Tensor q, k, v, mixed, document_start;  // [B, T, H, D], [B, S, K, D], [B, S, K, D], [B, T, H, D], [B, T]
  Tensor qkv{};                           // [B, T, (H + 2 K) D], if q, k and v are inside
};

// A [N, C] tensor as [B, T, C], and as heads.
Tensor by_row(const Pass& pass, const Tensor& t) { return t.view({pass.batch.rows, pass.batch.context, t.cols()}); }
HeadViews head_views(const Pass& pass, const Tensor& qkv) {
  return {by_row(pass, qkv), pass.config.heads, pass.config.kv_heads, pass.config.head_size};
}

Views attention_views(const Pass& pass, const AttentionSaved& saved) {
  const Microbatch& b = pass.batch;
  const auto split = [&](const Tensor& t, int64_t count) { return t.view({b.rows, b.context, count, pass.config.head_size}); };
  const Tensor mixed = split(saved.mixed, pass.config.heads);
  const Tensor start = pass.config.document_mask && b.document_start ? b.document_start.view({b.rows, b.context}) : Tensor{};
  if (reads_together(pass.config, saved)) {
    const HeadViews heads = head_views(pass, saved.qkv);
    return {.q = heads.q, .k = heads.k, .v = heads.v, .mixed = mixed, .document_start = start, .qkv = by_row(pass, saved.qkv)};
  }
  return {.q = split(saved.q, pass.config.heads),
          .k = split(saved.k, pass.config.kv_heads),
          .v = split(saved.v, pass.config.kv_heads),
          .mixed = mixed,
          .document_start = start};
}

// Rotates the queries and keys inside of qkv, of a model with positions of that kind; backward rotates them back.
void rotate_together(Pass& pass, const Tensor& qkv, bool backward) {
  if (!pass.rope) return;
  const int64_t heads = pass.config.heads, kv_heads = pass.config.kv_heads;
  run(pass.stream, Rotate{.x = qkv.view({pass.size(), heads + 2 * kv_heads, pass.config.head_size}),
                          .positions = pass.batch.positions,
                          .table = pass.rope,
                          .heads = heads + kv_heads,
                          .backward = backward});
}

// QK-norm: normalises each head of saved.q and saved.k, then rotates it by its position.
void head_norms_forward(Pass& pass, const HeadNormWeights& norm, const AttentionSaved& saved) {
  const float eps = static_cast<float>(pass.config.norm_eps);
  run(pass.stream,
      RmsNormForward{.y = heads(saved.q), .inv_rms = saved.q_inverse, .x = heads(saved.q_raw), .gain = norm.q_gain, .eps = eps});
  run(pass.stream,
      RmsNormForward{.y = heads(saved.k), .inv_rms = saved.k_inverse, .x = heads(saved.k_raw), .gain = norm.k_gain, .eps = eps});
  run(pass.stream, Rotate{.x = saved.q, .positions = pass.batch.positions, .table = pass.rope});
  run(pass.stream, Rotate{.x = saved.k, .positions = pass.batch.positions, .table = pass.rope});
}

// In place: turns gradients of attention's inputs into gradients of the projection's outputs.
void head_norms_backward(Pass& pass, const Trained<HeadNormWeights>& norm, const AttentionSaved& saved, Tensor dq, Tensor dk) {
  run(pass.stream, Rotate{.x = dk, .positions = pass.batch.positions, .table = pass.rope, .backward = true});
  run(pass.stream, Rotate{.x = dq, .positions = pass.batch.positions, .table = pass.rope, .backward = true});
  run(pass.stream, RmsNormBackward{.dx = heads(dk),
                                   .dgain = norm.gradients.k_gain,
                                   .dy = heads(dk),
                                   .x = heads(saved.k_raw),
                                   .gain = norm.weights.k_gain,
                                   .inv_rms = saved.k_inverse});
  run(pass.stream, RmsNormBackward{.dx = heads(dq),
                                   .dgain = norm.gradients.q_gain,
                                   .dy = heads(dq),
                                   .x = heads(saved.q_raw),
                                   .gain = norm.weights.q_gain,
                                   .inv_rms = saved.q_inverse});
}

}  // namespace

void AttentionWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const Shard& shard) {
  const ModelConfig local = shard_config(config, shard.count);
  const int64_t q = local.q_width(), kv = local.kv_width();
  // Shards that share a key-value head are neighbours; only the first counts it.
  const int64_t sharing = std::max<int64_t>(1, shard.count / config.kv_heads);
  const int64_t first_kv = shard.index / sharing * kv;
  const auto pieces = [&](const std::string& end) {
    const bool copy = shard.index % sharing != 0;
    return std::vector<WeightPiece>{{.name = "q" + end, .rows = q, .first = shard.index * q, .all = config.q_width()},
                                    {.name = "k" + end, .rows = kv, .first = first_kv, .all = config.kv_width(), .copy = copy},
                                    {.name = "v" + end, .rows = kv, .first = first_kv, .all = config.kv_width(), .copy = copy}};
  };
  visit(qkv, {.name = name + ".", .shape = {q + 2 * kv, config.width}, .init = Init::normal, .pieces = pieces("")});
  if (config.family == Family::gpt2 || config.qkv_bias)
    visit(qkv_bias, {.name = name + ".", .shape = {q + 2 * kv}, .init = Init::zero, .pieces = pieces("_bias")});
  visit(out, {.name = name + ".out",
              .shape = {config.width, q},
              .init = Init::residual,
              .pieces = {},
              .first_col = shard.index * q,
              .all_cols = config.q_width()});
  if (config.family == Family::gpt2 && shard.index == 0)
    visit(out_bias, {.name = name + ".out_bias", .shape = {config.width}, .init = Init::zero});
}

void HeadNormWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  if (!config.qk_norm) return;
  const auto spec = [&](const char* gain) {
    return WeightSpec{.name = name + gain, .shape = {config.head_size}, .init = Init::one, .pieces = {}, .shared = Shared::heads};
  };
  visit(q_gain, spec(".q_gain"));
  visit(k_gain, spec(".k_gain"));
}

void AttentionSaved::take(Arena& arena, const ModelConfig& config, int64_t rows, int64_t context, Dtype dtype) {
  const int64_t n = rows * context, h = config.heads, kv = config.kv_heads, d = config.head_size;
  qkv = arena.take(dtype, {n, (h + 2 * kv) * d});
  const Tensor all = qkv.view({qkv.size()});
  q = all.slice(0, n * h * d).view({n, h, d});
  k = all.slice(n * h * d, n * (h + kv) * d).view({n, kv, d});
  v = all.slice(n * (h + kv) * d, all.size()).view({n, kv, d});
  if (config.qk_norm) {
    q_raw = arena.take(dtype, {n, h, d});
    k_raw = arena.take(dtype, {n, kv, d});
    q_inverse = arena.take(Dtype::f32, {n * h});
    k_inverse = arena.take(Dtype::f32, {n * kv});
  }
  mixed = arena.take(dtype, {n, h * d});
  lse = arena.take(Dtype::f32, {rows, h, context});
}

namespace {

// qkv = the product for queries, keys and values.
void project(Pass& pass, const LinearWeight& weight, GatheredRows& x, const Tensor& qkv) {
  x.each(GatheredRows::First::own,
         [&](const RowRange& rows, const Tensor& some) { linear_forward(pass, weight, {.x = some, .y = rows.of(qkv)}); });
}

// The product, and rotation by position.
void project_together(Pass& pass, const LinearWeight& weight, GatheredRows& x, const AttentionSaved& saved) {
  project(pass, weight, x, saved.qkv);
  rotate_together(pass, saved.qkv, false);
}

// The same into separate heads, rotated after the norm if there is one.
void project_apart(Pass& pass, const LinearWeight& weight, GatheredRows& x, const HeadNormWeights& norm,
                   const AttentionSaved& saved) {
  const bool qk_norm = pass.config.qk_norm;
  const Tensor qkv = pass.temporary(pass.config.q_width() + 2 * pass.config.kv_width());
  project(pass, weight, x, qkv);
  run(pass.stream, SplitHeadsForward{.q = qk_norm ? saved.q_raw : saved.q,
                                     .k = qk_norm ? saved.k_raw : saved.k,
                                     .v = saved.v,
                                     .qkv = qkv,
                                     .positions = pass.batch.positions,
                                     .table = qk_norm ? Tensor{} : pass.rope});
  if (qk_norm) head_norms_forward(pass, norm, saved);
}

// Each row attends to the keys and values of its sequence, to which this pass adds its own.
void attend_to_cached(Pass& pass, const AttentionSaved& saved) {
  const int64_t t = pass.batch.context, d = pass.config.head_size;
  for (int64_t row = 0; row < pass.batch.rows; ++row) {
    const CachedHeads& cached = saved.cached[static_cast<size_t>(row)];
    const int64_t begin = row * t, end = begin + t, s = cached.k.dim(0);
    run(pass.stream, Cast{.y = cached.k.slice(s - t, s), .x = saved.k.slice(begin, end)});
    run(pass.stream, Cast{.y = cached.v.slice(s - t, s), .x = saved.v.slice(begin, end)});
    run(pass.stream, AttentionForward{.out = saved.mixed.slice(begin, end).view({1, t, pass.config.heads, d}),
                                      .lse = saved.lse.slice(row, row + 1),
                                      .q = saved.q.slice(begin, end).view({1, t, pass.config.heads, d}),
                                      .k = cached.k.view({1, s, pass.config.kv_heads, d}),
                                      .v = cached.v.view({1, s, pass.config.kv_heads, d}),
                                      .window = pass.config.window,
                                      .scale = scale(pass.config)});
  }
}

void attend(Pass& pass, const AttentionSaved& saved) {
  const Views view = attention_views(pass, saved);
  run(pass.stream, AttentionForward{.out = view.mixed,
                                    .lse = saved.lse,
                                    .q = view.q,
                                    .k = view.k,
                                    .v = view.v,
                                    .document_start = view.document_start,
                                    .qkv = view.qkv,
                                    .window = pass.config.window,
                                    .scale = scale(pass.config)});
}

}  // namespace

void attention_forward(Pass& pass, const AttentionWeights& weights, const HeadNormWeights& norm, const AttentionSaved& saved,
                       const ShardForward& rows) {
  const Frame frame(pass.temporaries);
  // 1. queries, keys and values
  const LinearWeight qkv{.w = weights.qkv, .bias = weights.qkv_bias, .rounded = weights.rounded_qkv};
  if (reads_together(pass.config, saved))
    project_together(pass, qkv, rows.x, saved);
  else
    project_apart(pass, qkv, rows.x, norm, saved);
  // 2. attention
  saved.cached.empty() ? attend(pass, saved) : attend_to_cached(pass, saved);
  // 3. projection back to the stream
  const LinearWeight out{.w = weights.out, .bias = weights.out_bias, .rounded = weights.rounded_out};
  rows.y.each(rows.shard,
              [&](const RowRange& some, const Tensor& y) { linear_forward(pass, out, {.x = some.of(saved.mixed), .y = y}); });
}

AttentionKept AttentionKept::take(Pass& pass) {
  const int64_t width = pass.config.q_width() + 2 * pass.config.kv_width();
  return {.out = keep_gradient(pass, pass.config.width),
          .qkv = keep_gradient(pass, width),
          .dqkv = pass.config.qk_norm ? Tensor{} : pass.temporary(width)};
}

namespace {

// Gradients of attention's inputs, where attention_backward_input() wants them.
struct HeadGradients {
  Tensor dq, dk, dv;  // [B, T, H, D], [B, T, K, D], [B, T, K, D]
  Tensor dqkv{};      // [B, T, (H + 2 K) D], if they are inside
};

void differentiate(Pass& pass, const AttentionSaved& saved, const HeadGradients& to, const Tensor& dmixed) {
  const Views view = attention_views(pass, saved);
  run(pass.stream,
      AttentionBackward{.dq = to.dq,
                        .dk = to.dk,
                        .dv = to.dv,
                        .dout = dmixed.view({pass.batch.rows, pass.batch.context, pass.config.heads, pass.config.head_size}),
                        .out = view.mixed,
                        .lse = saved.lse,
                        .q = view.q,
                        .k = view.k,
                        .v = view.v,
                        .document_start = view.document_start,
                        .dqkv = to.dqkv,
                        .qkv = view.qkv,
                        .window = pass.config.window,
                        .scale = scale(pass.config)});
}

// dqkv [N, (H + 2 K) D] from dmixed; not saved.qkv, which attention reads meanwhile.
void backward_together(Pass& pass, const AttentionSaved& saved, const Tensor& dqkv, const Tensor& dmixed) {
  const HeadViews to = head_views(pass, dqkv);
  differentiate(pass, saved, {.dq = to.q, .dk = to.k, .dv = to.v, .dqkv = by_row(pass, dqkv)}, dmixed);
  rotate_together(pass, dqkv, true);
}

// saved.qkv = the projection's gradient from dmixed.
void backward_apart(Pass& pass, const Trained<HeadNormWeights>& norm, const AttentionSaved& saved, const Tensor& dmixed) {
  const int64_t b = pass.batch.rows, t = pass.batch.context, h = pass.config.heads, kv = pass.config.kv_heads,
                d = pass.config.head_size;
  const Tensor dq = pass.temporaries.take(pass.dtype, {b * t, h, d});
  const Tensor dk = pass.temporaries.take(pass.dtype, {b * t, kv, d}), dv = pass.temporaries.take(pass.dtype, {b * t, kv, d});
  differentiate(pass, saved, {.dq = dq.view({b, t, h, d}), .dk = dk.view({b, t, kv, d}), .dv = dv.view({b, t, kv, d})}, dmixed);
  head_norms_backward(pass, norm, saved, dq, dk);
  run(pass.stream, SplitHeadsBackward{.dqkv = saved.qkv, .dq = dq, .dk = dk, .dv = dv});
}

}  // namespace

void attention_backward_input(Pass& pass, const AttentionWeights& weights, const Trained<HeadNormWeights>& norm,
                              const AttentionSaved& saved, const ShardBackwardInput<AttentionKept>& rows) {
  const Frame frame(pass.temporaries);
  const LinearWeight out{.w = weights.out, .rounded = weights.rounded_out}, qkv{.w = weights.qkv, .rounded = weights.rounded_qkv};
  // 3.
  const Tensor dmixed = pass.temporary(pass.config.q_width());
  rows.dy.each(GatheredRows::First::own, [&](const RowRange& some, const Tensor& dy) {
    linear_backward_input(pass, out, {.dy = dy, .dx = some.of(dmixed), .keep = rows.keep.out});
  });
  // 2.
  Tensor dqkv = saved.qkv;
  if (reads_together(pass.config, saved)) {
    dqkv = rows.keep.dqkv ? rows.keep.dqkv : pass.temporary(saved.qkv.cols());
    backward_together(pass, saved, dqkv, dmixed);
    if (!rows.keep.dqkv) run(pass.stream, Cast{.y = saved.qkv, .x = dqkv});
  } else {
    backward_apart(pass, norm, saved, dmixed);
  }
  // 1.
  rows.dx.each(rows.shard, [&](const RowRange& some, const Tensor& dx) {
    linear_backward_input(pass, qkv, {.dy = some.of(dqkv), .dx = dx, .keep = rows.keep.qkv});
  });
}

void attention_backward_weight(Pass& pass, AttentionWeights& gradients, const AttentionSaved& saved,
                               const PartBackwardWeight<AttentionKept>& rows) {
  // 3.
  linear_backward_weight(pass, {.w = gradients.out, .bias = gradients.out_bias},
                         {.dy = rows.dy, .x = saved.mixed, .kept = rows.kept.out});
  // 1.
  linear_backward_weight(pass, {.w = gradients.qkv, .bias = gradients.qkv_bias},
                         {.dy = rows.kept.dqkv ? rows.kept.dqkv : saved.qkv, .x = rows.x, .kept = rows.kept.qkv});
}

}  // namespace trireme
