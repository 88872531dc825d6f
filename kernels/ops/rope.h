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

// The inverse: dqkv from dq, dk, dv, rotated back if a table is given.
struct SplitHeadsBackward {
  static constexpr auto name = "split_heads_backward";
  Tensor dqkv;         // out  [N, (H + 2 K) D]
  Tensor dq, dk, dv;   // in   [N, H, D], [N, K, D], [N, K, D]
  Tensor positions{};  // in   [N] i32; with table
  Tensor table{};      // in   [P, D/2, 2] f32, optional
  void visit(auto& t) const { t.out(dqkv), t.in(dq, dk, dv, positions, table); }
  void check() const { SplitHeadsForward{.q = dq, .k = dk, .v = dv, .qkv = dqkv, .positions = positions, .table = table}.check(); }
};
void launch(const Cpu&, const SplitHeadsBackward&);
void launch(const Cuda&, const SplitHeadsBackward&);

// Rotates every head of x in place by its row's position; backward rotates back. For models that
// normalise q and k first (QK-norm).
struct Rotate {
  static constexpr auto name = "rotate";
  Tensor x;                 // add  [N, H, D]
  Tensor positions, table;  // in   [N] i32, [P, D/2, 2] f32
  bool backward = false;
  void visit(auto& t) const { t.add(x), t.in(positions, table); }
  void check() const {
    expect_float(x, "x");
    expect(x, "x", {x.dim(0), x.dim(1), x.cols()});
    expect(positions, "positions", Dtype::i32, {x.dim(0)});
    require(x.cols() % 2 == 0, text("rope of heads of size ", x.cols(), ": it turns pairs"));
    expect(table, "table", Dtype::f32, {table.dim(0), x.cols() / 2, 2});
  }
};
void launch(const Cpu&, const Rotate&);
void launch(const Cuda&, const Rotate&);

}  // namespace trireme
