// Matrices as products of two narrow ones, P Q^T, for sums over ranks. The method is PowerSGD (Vogels et
// al., "PowerSGD: practical low-rank gradient compression for distributed optimization", 2019).
#pragma once

#include "kernels/run.h"

namespace trireme {

// x's columns become an orthonormal basis of what they span (Gram and Schmidt's process, modified). For
// a column that the earlier ones span, there is one of the unit vectors instead.
struct Orthonormalize {
  static constexpr auto name = "orthonormalize";
  static constexpr int64_t kMostCols = 64;
  Tensor x;  // add  [m, rank] f32; rank at most m
  void visit(auto& t) const { t.add(x); }
  void check() const {
    expect(x, "x", Dtype::f32, {x.rows(), x.cols()});
    require(x.cols() >= 1 && x.cols() <= kMostCols && x.cols() <= x.rows(), text("a basis of the columns of ", x));
  }
};
void launch(const Cpu&, const Orthonormalize&);
void launch(const Cuda&, const Orthonormalize&);

// y = p q^T.
struct LowRank {
  static constexpr auto name = "low_rank";
  Tensor y;  // out  [m, k] f32
  Tensor p;  // in   [m, rank] f32
  Tensor q;  // in   [k, rank] f32
  void visit(auto& t) const { t.out(y), t.in(p, q); }
  void check() const {
    expect(y, "y", Dtype::f32, {y.rows(), y.cols()});
    expect(p, "p", Dtype::f32, {y.rows(), p.cols()});
    expect(q, "q", Dtype::f32, {y.cols(), p.cols()});
  }
};
void launch(const Cpu&, const LowRank&);
void launch(const Cuda&, const LowRank&);

// next = x - p q^T: what a product leaves out.
struct LowRankRest {
  static constexpr auto name = "low_rank_rest";
  Tensor next;  // out  [m, k] bf16
  Tensor x;     // in   [m, k] f32
  Tensor p;     // in   [m, rank] f32
  Tensor q;     // in   [k, rank] f32
  void visit(auto& t) const { t.out(next), t.in(x, p, q); }
  void check() const {
    expect(x, "x", Dtype::f32, {x.rows(), x.cols()});
    expect(next, "next", Dtype::bf16, {x.rows(), x.cols()});
    expect(p, "p", Dtype::f32, {x.rows(), p.cols()});
    expect(q, "q", Dtype::f32, {x.cols(), p.cols()});
  }
};
void launch(const Cpu&, const LowRankRest&);
void launch(const Cuda&, const LowRankRest&);

// The unit vector that stands for column `col` of `rows`.
constexpr int64_t substitute_row(int64_t col, int64_t rows) { return (col * 7919 + 1) % rows; }

}  // namespace trireme
