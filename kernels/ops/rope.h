// Rotary position embedding (Su et al., "RoFormer", 2021) in the rotate-half layout of Hugging
// Face's Llama. Element i of a head is paired with element i + D/2; the pair at position p rotates
// by the angle p * frequency[i].
#pragma once

#include "kernels/run.h"

namespace trireme {

// table[p, i] = (cos, sin)(p * frequency[i]), frequency[i] = theta^(-2i/D), computed in double.
// With factor > 1, Llama 3.1's scaling by wavelength w = 2 pi / frequency against the original
// context L: w < L / high_factor keeps the frequency, w > L / low_factor divides it by factor.
// Between them s = (L / w - low) / (high - low) mixes (1 - s) f / factor + s f.
struct RopeTable {
  static constexpr auto name = "rope_table";
  Tensor table;  // out  [P, D/2, 2] f32
  double theta = 10000;
  double factor = 1, low_factor = 1, high_factor = 4, original_context = 8192;
  void visit(auto& t) const { t.out(table); }
  void check() const { expect(table, "table", Dtype::f32, {table.dim(0), table.dim(1), 2}); }
};
void launch(const Cpu&, const RopeTable&);
void launch(const Cuda&, const RopeTable&);

// Splits the fused projection into heads; rotates q and k if a table is given. H heads and K
// key-value heads of size D.
struct SplitHeadsForward {
  static constexpr auto name = "split_heads";
  Tensor q, k, v;      // out  [N, H, D], [N, K, D], [N, K, D]
  Tensor qkv;          // in   [N, (H + 2 K) D]: a row is all of q, then all of k, then all of v
  Tensor positions{};  // in   [N] i32; with table
  Tensor table{};      // in   [P, D/2, 2] f32, optional
  void visit(auto& t) const { t.out(q, k, v), t.in(qkv, positions, table); }
  void check() const {
    expect_float(qkv, "qkv");
    const int64_t n = qkv.rows(), d = q.cols();
    expect(q, "q", qkv.dtype(), {n, q.dim(1), d});
    expect(k, "k", qkv.dtype(), {n, k.dim(1), d});
    expect(v, "v", qkv.dtype(), {n, k.dim(1), d});
    expect(qkv, "qkv", {n, (q.dim(1) + 2 * k.dim(1)) * d});
    if (table) {
      require(d % 2 == 0, text("rope of heads of size ", d, ": it turns pairs"));
      expect(table, "table", Dtype::f32, {table.dim(0), d / 2, 2});
      expect(positions, "positions", Dtype::i32, {n});
    }
  }
};
void launch(const Cpu&, const SplitHeadsForward&);
void launch(const Cuda&, const SplitHeadsForward&);

// The inverse without a rotation: dqkv from dq, dk, dv.
struct SplitHeadsBackward {
  static constexpr auto name = "split_heads_backward";
  Tensor dqkv;        // out  [N, (H + 2 K) D]
  Tensor dq, dk, dv;  // in   [N, H, D], [N, K, D], [N, K, D]
  void visit(auto& t) const { t.out(dqkv), t.in(dq, dk, dv); }
  void check() const { SplitHeadsForward{.q = dq, .k = dk, .v = dv, .qkv = dqkv}.check(); }
};
void launch(const Cpu&, const SplitHeadsBackward&);
void launch(const Cuda&, const SplitHeadsBackward&);

// Rotates heads of x in place by their row's position; backward rotates back.
struct Rotate {
  static constexpr auto name = "rotate";
  Tensor x;                  // add  [N, H, D]
  Tensor positions, table;   // in   [N] i32, [P, D/2, 2] f32
  int64_t heads = x.dim(1);  // the first of each row that rotate
  bool backward = false;
  double bytes_untouched() const { return 2.0 * static_cast<double>(x.bytes() / x.dim(1) * (x.dim(1) - heads)); }
  void visit(auto& t) const { t.add(x), t.in(positions, table); }
  void check() const {
    expect_float(x, "x");
    expect(x, "x", {x.dim(0), x.dim(1), x.cols()});
    expect(positions, "positions", Dtype::i32, {x.dim(0)});
    require(x.cols() % 2 == 0, text("rope of heads of size ", x.cols(), ": it turns pairs"));
    require(0 <= heads && heads <= x.dim(1), text("rope of ", heads, " heads of ", x));
    expect(table, "table", Dtype::f32, {table.dim(0), x.cols() / 2, 2});
  }
};
void launch(const Cpu&, const Rotate&);
void launch(const Cuda&, const Rotate&);

}  // namespace trireme
