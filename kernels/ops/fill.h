// Fills, moves and sums of whole tensors.
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
void launch(const Cuda&, const Fill&);

// y = x, rounded to y's dtype.
struct Cast {
  static constexpr auto name = "cast";
  Tensor y;  // out  any shape, f32 or bf16
  Tensor x;  // in   the same number of elements
  void visit(auto& t) const { t.out(y), t.in(x); }
  void check() const {
    expect_float(x, "x"), expect_float(y, "y");
    require(x.size() == y.size(), text("cast of ", x, " to ", y));
  }
};
void launch(const Cpu&, const Cast&);
void launch(const Cuda&, const Cast&);

// y = some columns of x, rounded to y's dtype.
struct CastColumns {
  static constexpr auto name = "cast_columns";
  Tensor y;       // out  [rows, n], f32 or bf16
  Tensor x;       // in   [rows, columns], f32 or bf16
  int64_t first;  // column of x that becomes the first of y
  void visit(auto& t) const { t.out(y), t.in(x); }
  void check() const {
    expect_float(x, "x"), expect_float(y, "y");
    require(x.dims() == 2 && y.dims() == 2 && x.dim(0) == y.dim(0) && first >= 0 && first + y.cols() <= x.cols(),
            text("columns from ", first, " of ", x, " to ", y));
  }
};
void launch(const Cpu&, const CastColumns&);
void launch(const Cuda&, const CastColumns&);

// y = a + b; y may be a or b.
struct Add {
  static constexpr auto name = "add";
  Tensor y;     // out  any shape
  Tensor a, b;  // in   the same shape and dtype
  void visit(auto& t) const { t.out(y), t.in(a, b); }
  void check() const {
    expect_float(y, "y");
    require(a.same_shape(y) && b.same_shape(y) && a.dtype() == y.dtype() && b.dtype() == y.dtype(),
            text("add of ", a, " and ", b, " into ", y));
  }
};
void launch(const Cpu&, const Add&);
void launch(const Cuda&, const Add&);

// y = parts[0] + parts[1] + ..., in f32, in the order of a balanced tree, as collectives sum. y may
// be the first part.
struct SumParts {
  static constexpr auto name = "sum_parts";
  Tensor y;                 // out  any shape; with `accumulate` updated in place
  Tensor parts;             // in   [parts n, ...] f32 or bf16: y's n elements for each part
  bool accumulate = false;  // y += the sum
  void visit(auto& t) const { accumulate ? t.add(y) : t.out(y), t.in(parts); }
  void check() const {
    expect_float(y, "y"), expect_float(parts, "parts");
    require(y.size() == 0 || parts.size() % y.size() == 0, text("the sum of the parts of ", parts, " into ", y));
  }
};
void launch(const Cpu&, const SumParts&);
void launch(const Cuda&, const SumParts&);

// Adds addend number `index` to a sum of many addends in the order of one tree. Row k of the tree
// is the sum of 2^k consecutive addends, or unused. Addends enter in order; two rows of equal size
// are added into the next, like the carry of a binary counter.
struct TreeAdd {
  static constexpr auto name = "tree_add";
  Tensor tree;    // add  [levels, n] f32, columns `first` to first + m; 2^levels exceeds the number of addends
  Tensor addend;  // in   [m] f32
  int64_t index;
  int64_t first = 0;
  void visit(auto& t) const { t.add(tree), t.in(addend); }
  void check() const {
    expect(tree, "tree", Dtype::f32, {tree.dim(0), tree.cols()});
    expect(addend, "addend", Dtype::f32, {addend.size()});
    require(first >= 0 && first + addend.size() <= tree.cols(), text(addend, " at ", first, " of a tree of ", tree));
    require(index >= 0 && index + 1 < (int64_t{1} << tree.dim(0)),
            text("addend ", index, " of a tree of ", tree.dim(0), " levels"));
  }
};
void launch(const Cpu&, const TreeAdd&);
void launch(const Cuda&, const TreeAdd&);

// Row 0 of a tree = the sum of its rows in use, after `count` addends have entered.
struct TreeTotal {
  static constexpr auto name = "tree_total";
  Tensor tree;  // add  [levels, n] f32
  int64_t count;
  void visit(auto& t) const { t.add(tree); }
  void check() const {
    expect(tree, "tree", Dtype::f32, {tree.dim(0), tree.cols()});
    require(count >= 1 && count < (int64_t{1} << tree.dim(0)), text(count, " addends in a tree of ", tree.dim(0), " levels"));
  }
};
void launch(const Cpu&, const TreeTotal&);
void launch(const Cuda&, const TreeTotal&);

// total += scale * sum(x), summed in double in a fixed order.
struct SumInto {
  static constexpr auto name = "sum";
  Tensor total;  // add  [1] f32
  Tensor x;      // in   any shape, f32
  float scale = 1;
  Tensor factor{};  // in  [1] f32, times scale; absent: 1
  void visit(auto& t) const { t.add(total), t.in(x, factor); }
  void check() const {
    expect(total, "total", Dtype::f32, {1});
    if (factor) expect(factor, "factor", Dtype::f32, {1});
    require(x.dtype() == Dtype::f32, text("x is ", x));
  }
};
void launch(const Cpu&, const SumInto&);
void launch(const Cuda&, const SumInto&);

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
void launch(const Cuda&, const BiasBackward&);

// x[i] = stddev * normal(key, index(first + i)): see philox.h. Independent of threads and of how
// the tensor is cut.
struct FillNormal {
  static constexpr auto name = "fill_normal";
  Tensor x;  // out  any shape, f32
  float stddev = 1;
  uint64_t key = 0;
  int64_t first = 0;  // index of x's first element in its piece of the tensor
  // The piece: `cols` columns of a tensor with `stride` columns, beginning at element `origin`. By
  // default the whole tensor.
  int64_t origin = 0, cols = 1, stride = 1;
  int64_t index(int64_t i) const { return origin + i / cols * stride + i % cols; }
  void visit(auto& t) const { t.out(x); }
  void check() const { require(x.dtype() == Dtype::f32, text("x is ", x)); }
};
void launch(const Cpu&, const FillNormal&);
void launch(const Cuda&, const FillNormal&);

}  // namespace trireme
