// x[n] = table[tokens[n]] (+ positions_table[positions[n]]). A table may be a shard, rows [first,
// first + V) of a larger one: other tokens then have a row of zeros.
#pragma once

#include "kernels/run.h"

namespace trireme {

struct EmbeddingForward {
  static constexpr auto name = "embedding";
  Tensor x;                 // out  [N, C]
  Tensor tokens;            // in   [N] i32, each in [0, V); for a shard only >= 0
  Tensor table;             // in   [V, C], the dtype of x, or bf16
  Tensor positions{};       // in   [N] i32, each in [0, P); with position_table
  Tensor position_table{};  // in   [P, C], optional
  bool shard = false;
  int64_t first = 0;  // first row of a shard
  bool join = false;  // write only the rows of the shard's tokens: another shard has written all
  void visit(auto& t) const { join ? t.add(x) : t.out(x), t.in(tokens, table, positions, position_table); }
  void check() const {
    expect_float(x, "x");
    expect(tokens, "tokens", Dtype::i32, {x.rows()});
    expect_float(table, "table"), expect(table, "table", {table.dim(0), x.cols()});
    require(x.dtype() == Dtype::f32 || table.dtype() == x.dtype(), text("rows of ", table, " as ", x));
    if (position_table) {
      expect(position_table, "position_table", table.dtype(), {position_table.dim(0), x.cols()});
      expect(positions, "positions", Dtype::i32, {x.rows()});
    }
  }
};
void launch(const Cpu&, const EmbeddingForward&);
void launch(const Cuda&, const EmbeddingForward&);

// Adds each row of dx to its token's (and position's) row in the order of n: deterministic for any
// number of threads.
struct EmbeddingBackward {
  static constexpr auto name = "embedding_backward";
  Tensor dtable;             // add  [V, C] f32
  Tensor dposition_table{};  // add  [P, C] f32, optional
  Tensor dx;                 // in   [N, C]
  Tensor tokens;             // in   [N] i32
  Tensor positions{};        // in   [N] i32; with dposition_table
  bool shard = false;        // dtable has rows for the shard's tokens only
  int64_t first = 0;
  void visit(auto& t) const { t.add(dtable, dposition_table), t.in(dx, tokens, positions); }
  void check() const {
    expect_float(dx, "dx");
    expect(dtable, "dtable", Dtype::f32, {dtable.dim(0), dx.cols()});
    expect(tokens, "tokens", Dtype::i32, {dx.rows()});
    if (dposition_table) {
      expect(dposition_table, "dposition_table", Dtype::f32, {dposition_table.dim(0), dx.cols()});
      expect(positions, "positions", Dtype::i32, {dx.rows()});
    }
  }
};
void launch(const Cpu&, const EmbeddingBackward&);
void launch(const Cuda&, const EmbeddingBackward&);

}  // namespace trireme
