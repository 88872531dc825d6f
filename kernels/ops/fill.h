// Plain moves and sums of whole tensors.
#pragma once

#include "kernels/run.h"

namespace trireme {

// x = value.
struct Fill {
  static constexpr auto name = "fill";
  Tensor x;  // out  any shape, f32 or bf16
  float value = 0;
  void visit(auto& t) const { t.out(x); }
  void check() const { expect_float(x, "x"); }
};
void launch(const Cpu&, const Fill&);

// y = x, rounded to y's dtype.
struct Cast {
  static constexpr auto name = "cast";
  Tensor y;  // out  any shape, f32 or bf16
  Tensor x;  // in   the same number of elements
  void visit(auto& t) const { t.out(y), t.in(x); }
  void check() const {
    expect_float(x, "x"), expect_float(y, "y");
    require(x.size() == y.size(), text("cast of ", x.shape_text(), " to ", y.shape_text()));
  }
};
void launch(const Cpu&, const Cast&);

// y = a + b; y may be a or b.
struct Add {
  static constexpr auto name = "add";
  Tensor y;     // out  any shape
  Tensor a, b;  // in   the same shape and dtype
  void visit(auto& t) const { t.out(y), t.in(a, b); }
  void check() const {
    expect_float(y, "y");
    require(a.same_shape(y) && b.same_shape(y) && a.dtype() == y.dtype() && b.dtype() == y.dtype(),
            text("add of ", a.shape_text(), " and ", b.shape_text(), " into ", y.shape_text()));
  }
};
void launch(const Cpu&, const Add&);

// total += scale * sum(x), summed in double in one fixed order.
struct SumInto {
  static constexpr auto name = "sum";
  Tensor total;  // add  [1] f32
  Tensor x;      // in   any shape, f32
  float scale = 1;
  void visit(auto& t) const { t.add(total), t.in(x); }
  void check() const {
    expect(total, "total", Dtype::f32, {1});
    require(x.dtype() == Dtype::f32, text("x is ", x.shape_text()));
  }
};
void launch(const Cpu&, const SumInto&);

// db[c] += sum over rows of dy[n, c]: the gradient of a bias.
struct BiasBackward {
  static constexpr auto name = "bias_backward";
  Tensor dbias;  // add  [C] f32
  Tensor dy;     // in   [N, C]
  void visit(auto& t) const { t.add(dbias), t.in(dy); }
  void check() const {
    expect_float(dy, "dy");
    expect(dbias, "dbias", Dtype::f32, {dy.cols()});
  }
};
void launch(const Cpu&, const BiasBackward&);

// x[i] = stddev * normal(key, first + i): see philox.h. Independent of threads and of how the tensor is split.
struct FillNormal {
  static constexpr auto name = "fill_normal";
  Tensor x;  // out  any shape, f32
  float stddev = 1;
  uint64_t key = 0;
  int64_t first = 0;  // the global index of x's first element
  void visit(auto& t) const { t.out(x); }
  void check() const { require(x.dtype() == Dtype::f32, text("x is ", x.shape_text())); }
};
void launch(const Cpu&, const FillNormal&);

}  // namespace trireme
