#include "kernels/cuda/cudnn_attention.h"

namespace trireme {
namespace {

// `heads` of [B, T, ., D] in memory, with `row` elements between tokens.
Layout heads_of(const HeadGroup& s, int64_t heads, int64_t row) {
  const int64_t d = s.whole.head_size, t = s.whole.tokens;
  return {{s.whole.rows, heads, t, d}, {t * row, d, row, 1}};
}
Layout queries_of(const HeadGroup& s) { return heads_of(s, s.heads(), s.whole.row(s.whole.heads)); }
Layout keys_of(const HeadGroup& s) { return heads_of(s, s.kv_heads, s.whole.row(s.whole.kv_heads)); }
Layout out_of(const HeadGroup& s) { return heads_of(s, s.heads(), s.whole.heads * s.whole.head_size); }
// One number for each row of scores, of [B, H, T] in memory.
Layout rows_of(const HeadGroup& s) {
  const int64_t t = s.whole.tokens;
  return {{s.whole.rows, s.heads(), t, 1}, {s.whole.heads * t, t, 1, 1}};
}
Layout square_of(const HeadGroup& s) { return dense({s.whole.rows, s.heads(), s.whole.tokens, s.whole.tokens}); }

// Returns scores if a query sees the key, else -infinity.
Value masked(CudnnGraph& g, const HeadGroup& s, const Value& scores, const Value& hidden) {
  const auto hide = [&](const Value& x, cudnnPointwiseMode_t mode, const Value& a, const Value& b) {
    const Value sees = g.inner(CUDNN_DATA_BOOLEAN, scores.layout), y = g.inner(CUDNN_DATA_FLOAT, scores.layout);
    g.pointwise({mode, CUDNN_DATA_BOOLEAN}, sees, a, b);
    g.pointwise({CUDNN_POINTWISE_BINARY_SELECT}, y, x, hidden, sees);
    return y;
  };
  const auto index = [&](const Value& x, int64_t axis) {
    const Value y = g.inner(CUDNN_DATA_INT32, scores.layout);
    g.pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis}, y, x);
    return y;
  };
  Value seen = hide(scores, CUDNN_POINTWISE_CMP_GE, index(scores, 2), index(scores, 3));
  if (s.whole.window > 0) {
    const Value row = index(seen, 2), column = index(seen, 3), end = g.inner(CUDNN_DATA_INT32, scores.layout);
    g.pointwise({CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32}, end, column, g.number(kWindow, CUDNN_DATA_INT32));
    seen = hide(seen, CUDNN_POINTWISE_CMP_GT, end, row);
  }
  if (!s.whole.documents) return seen;
  const int64_t t = s.whole.tokens;
  const Value start = g.outer(kStart, CUDNN_DATA_INT32, {{s.whole.rows, 1, t, 1}, {t, t, 1, 1}});
  return hide(seen, CUDNN_POINTWISE_CMP_GE, index(seen, 3), start);
}

// dx = a b; if several query heads share a head of k and v, dx is the sum over these.
void add_heads(CudnnGraph& g, const HeadGroup& s, AttentionUid dx, const Value& a, const Value& b) {
  const Value to = g.outer(dx, CUDNN_DATA_BFLOAT16, keys_of(s));
  if (s.heads() == s.kv_heads) return g.matmul(to, a, b);
  const Value each = g.inner(CUDNN_DATA_BFLOAT16, dense(queries_of(s).dims));
  g.matmul(each, a, b);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, to, each);
}

}  // namespace

const Descriptor& forward_graph(CudnnGraph& g, const HeadGroup& s) {
  const Layout square = square_of(s), rows = dense({square.dims[0], square.dims[1], square.dims[2], 1});
  const Value q = g.outer(kQ, CUDNN_DATA_BFLOAT16, queries_of(s));
  const Value kt = g.outer(kK, CUDNN_DATA_BFLOAT16, keys_of(s).transposed());
  const Value v = g.outer(kV, CUDNN_DATA_BFLOAT16, keys_of(s));
  const Value products = g.inner(CUDNN_DATA_FLOAT, square);
  g.matmul(products, q, kt);
  const Value scores = g.f32(CUDNN_POINTWISE_MUL, products, g.number(kScale, CUDNN_DATA_FLOAT));
  const Value seen = masked(g, s, scores, g.number(kHidden, CUDNN_DATA_FLOAT));
  // softmax and its lse
  const Value top = g.inner(CUDNN_DATA_FLOAT, rows), total = g.inner(CUDNN_DATA_FLOAT, rows);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, top, seen);
  const Value e = g.f32(CUDNN_POINTWISE_EXP, g.f32(CUDNN_POINTWISE_SUB, seen, top));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, total, e);
  g.pointwise({CUDNN_POINTWISE_ADD}, g.outer(kLse, CUDNN_DATA_FLOAT, rows_of(s)), top, g.f32(CUDNN_POINTWISE_LOG, total));
  const Value p = g.inner(CUDNN_DATA_BFLOAT16, square);
  g.pointwise({CUDNN_POINTWISE_DIV}, p, e, total);
  g.matmul(g.outer(kOut, CUDNN_DATA_BFLOAT16, out_of(s)), p, v);
  return g.finish();
}

// The product writes dq directly: for sums in f32 memory cuDNN would use atomic additions, whose
// order varies.
const Descriptor& backward_graph(CudnnGraph& g, const HeadGroup& s) {
  const Layout queries = queries_of(s), keys = keys_of(s), square = square_of(s);
  const Layout rows = dense({square.dims[0], square.dims[1], square.dims[2], 1});
  const Value q = g.outer(kQ, CUDNN_DATA_BFLOAT16, queries), out = g.outer(kOut, CUDNN_DATA_BFLOAT16, out_of(s));
  const Value dout = g.outer(kDout, CUDNN_DATA_BFLOAT16, out_of(s)), lse = g.outer(kLse, CUDNN_DATA_FLOAT, rows_of(s));
  const Value kt = g.outer(kK, CUDNN_DATA_BFLOAT16, keys.transposed()), vt = g.outer(kV, CUDNN_DATA_BFLOAT16, keys.transposed());
  const Value scale = g.number(kScale, CUDNN_DATA_FLOAT);
  // the sums dout . out of rows
  const Value sums = g.inner(CUDNN_DATA_FLOAT, rows), row_sums = g.outer(kRowSums, CUDNN_DATA_FLOAT, rows);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, sums, g.f32(CUDNN_POINTWISE_MUL, dout, out));
  g.pointwise({CUDNN_POINTWISE_MUL}, row_sums, sums, g.number(kOne, CUDNN_DATA_FLOAT));
  // p = exp(scores - lse); dv = p' dout
  const Value products = g.inner(CUDNN_DATA_FLOAT, square);
  g.matmul(products, q, kt);
  const Value below = g.f32(CUDNN_POINTWISE_SUB, g.f32(CUDNN_POINTWISE_MUL, products, scale), lse);
  const Value p = g.f32(CUDNN_POINTWISE_EXP, masked(g, s, below, g.number(kHidden, CUDNN_DATA_FLOAT)));
  add_heads(g, s, kDv, g.transpose(p, CUDNN_DATA_BFLOAT16), dout);
  // ds = p (dout v' - row_sums) scale; dk = ds' q; dq = ds k
  const Value dp = g.inner(CUDNN_DATA_FLOAT, square);
  g.matmul(dp, dout, vt);
  const Value ds = g.f32(CUDNN_POINTWISE_MUL, g.f32(CUDNN_POINTWISE_MUL, g.f32(CUDNN_POINTWISE_SUB, dp, row_sums), p), scale);
  add_heads(g, s, kDk, g.transpose(ds, CUDNN_DATA_BFLOAT16), q);
  g.matmul(g.outer(kDq, CUDNN_DATA_BFLOAT16, queries), ds, g.transpose(kt, CUDNN_DATA_BFLOAT16));
  return g.finish();
}

}  // namespace trireme
