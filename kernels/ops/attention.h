// Causal grouped-query attention in flash style (Dao, "FlashAttention-2", 2023): no T x T matrix in
// memory, sums in f32.
//   out = softmax(scale * q k^T) v      query head h reads key-value head h * K / H
// The query at place t sees the keys max(document_start[t], t - window + 1) .. t. Places are those
// of the S keys; the T queries have the last T of them.
#pragma once

#include <algorithm>

#include "kernels/run.h"

namespace trireme {

// Pairs of query and key within the causal mask and the window, for one head and row; attention's
// FLOPs count these. Document masks only lower the number; they are not known beforehand and not
// counted.
inline double attention_pairs(int64_t queries, int64_t keys, int64_t window) {
  // The query at place t sees min(t + 1, most) keys: a triangle for places below `most`, a
  // rectangle for the others.
  const double first = static_cast<double>(keys - queries), last = static_cast<double>(keys);
  const double most = window > 0 ? static_cast<double>(window) : last;
  const double begin = std::min(first, most), end = std::min(last, most);
  return (end * (end + 1) - begin * (begin + 1)) / 2 + most * ((last - first) - (end - begin));
}

// Queries, keys and values, or their gradients, inside one tensor: views of the heads whose rows are as far apart as the
// tensor's. Only attention can read them.
struct HeadViews {
  Tensor q, k, v;  // [B, T, H, D], [B, T, K, D], [B, T, K, D]
  // `all` [B, T, (H + 2 K) D]: a row is all of q, then of k, then of v.
  HeadViews(const Tensor& all, int64_t heads, int64_t kv_heads, int64_t size)
      : q(view(all, 0, heads, size)),
        k(view(all, heads * size, kv_heads, size)),
        v(view(all, (heads + kv_heads) * size, kv_heads, size)) {}

 private:
  static Tensor view(const Tensor& all, int64_t first, int64_t heads, int64_t size) {
    auto* const data = static_cast<std::byte*>(all.data());
    return {data == nullptr ? nullptr : data + first * bytes_of(all.dtype()),
            all.dtype(),
            all.place(),
            {all.dim(0), all.dim(1), heads, size}};
  }
};

// Elements from a token's heads to the next token's.
inline int64_t row_of(const Tensor& heads, const Tensor& together) {
  return together ? together.cols() : heads.dim(2) * heads.dim(3);
}

// Returns nullopt if no library's kernels support it: f32, or queries after cached keys.
inline std::optional<AttentionShape> attention_shape(bool backward, const auto& op) {
  const Tensor &q = op.q, &k = op.k;
  if (q.dtype() != Dtype::bf16 || q.dim(1) != k.dim(1)) return std::nullopt;
  return AttentionShape{.backward = backward,
                        .rows = q.dim(0),
                        .tokens = q.dim(1),
                        .heads = q.dim(2),
                        .kv_heads = k.dim(2),
                        .head_size = q.dim(3),
                        .window = op.window,
                        .documents = op.document_start.present(),
                        .together = op.qkv.present()};
}

struct AttentionForward {
  static constexpr auto name = "attention";
  Tensor out, lse;          // out  [B, T, H, D], [B, H, T] f32: log of the sum of exp(scale * q.k) over the visible keys
  Tensor q, k, v;           // in   [B, T, H, D], [B, S, K, D], [B, S, K, D], S >= T
  Tensor document_start{};  // in   [B, T] i32, optional: the first key of the query's own document, <= its place
  Tensor qkv{};             // in   [B, T, (H + 2 K) D], optional: q, k and v are HeadViews of it
  int64_t window = 0;       // 0: no sliding window
  float scale;              // usually 1 / sqrt(D)
  double flops() const {
    return 4.0 * static_cast<double>(q.dim(0) * q.dim(2) * q.dim(3)) * attention_pairs(q.dim(1), k.dim(1), window);
  }
  std::optional<AttentionShape> shape() const { return attention_shape(false, *this); }
  void visit(auto& t) const {
    t.out(out, lse);
    qkv ? t.in(qkv, document_start) : t.in(q, k, v, document_start);
  }
  void check() const {
    expect_float(q, "q");
    const int64_t b = q.dim(0), t = q.dim(1), h = q.dim(2), d = q.dim(3), s = k.dim(1), kv = k.dim(2);
    expect(q, "q", {b, t, h, d});
    expect(k, "k", q.dtype(), {b, s, kv, d});
    expect(v, "v", q.dtype(), {b, s, kv, d});
    expect(out, "out", q.dtype(), {b, t, h, d});
    expect(lse, "lse", Dtype::f32, {b, h, t});
    if (document_start) expect(document_start, "document_start", Dtype::i32, {b, t});
    require(s >= t && kv > 0 && h % kv == 0, text("attention of ", q, " on ", k));
    if (qkv) expect(qkv, "qkv", q.dtype(), {b, t, (h + 2 * kv) * d});
    require(!qkv || s == t, text("attention of queries on more keys, ", k, ", in one tensor"));
  }
};
void launch(const Cpu&, const AttentionForward&);
void launch(const Cuda&, const AttentionForward&);

// Gradients of attention, deterministic. Recomputes the probabilities from lse.
struct AttentionBackward {
  static constexpr auto name = "attention_backward";
  Tensor dq, dk, dv;               // out  [B, T, H, D], [B, T, K, D], [B, T, K, D]
  Tensor dout, out, lse, q, k, v;  // in   as the forward left them, with S = T
  Tensor document_start{};         // in   [B, T] i32, optional
  Tensor dqkv{}, qkv{};            // out, in  [B, T, (H + 2 K) D], optional, both or none: the above are HeadViews of them
  int64_t window = 0;
  float scale;
  double flops() const {
    return 10.0 * static_cast<double>(q.dim(0) * q.dim(2) * q.dim(3)) * attention_pairs(q.dim(1), k.dim(1), window);
  }
  std::optional<AttentionShape> shape() const { return attention_shape(true, *this); }
  void visit(auto& t) const {
    dqkv ? t.out(dqkv) : t.out(dq, dk, dv);
    qkv ? t.in(dout, out, lse, qkv, document_start) : t.in(dout, out, lse, q, k, v, document_start);
  }
  void check() const {
    AttentionForward{.out = out, .lse = lse, .q = q, .k = k, .v = v, .document_start = document_start, .qkv = qkv, .scale = scale}
        .check();
    AttentionForward{.out = dout, .lse = lse, .q = dq, .k = dk, .v = dv, .qkv = dqkv, .scale = scale}.check();
    require(qkv.present() == dqkv.present(), text("attention backward with one of qkv and dqkv"));
    require(dq.same_shape(q) && dk.same_shape(k) && q.dim(1) == k.dim(1) && dq.dtype() == q.dtype(),
            text("attention backward of ", q, " on ", k));
  }
};
void launch(const Cpu&, const AttentionBackward&);
void launch(const Cuda&, const AttentionBackward&);

}  // namespace trireme
