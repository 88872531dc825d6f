// c = op(a) op(b) [+ bias] [+ c]: every matrix product of the model. Sums in f32.
#pragma once

#include "kernels/run.h"

namespace trireme {

struct Matmul {
  static constexpr auto name = "matmul";
  Tensor c;       // out  [M, N]; with `accumulate` updated in place
  Tensor a;       // in   [M, K], or [K, M] when transpose_a
  Tensor b;       // in   [K, N], or [N, K] when transpose_b
  Tensor bias{};  // in   [N], optional; the dtype of a
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =

  int64_t m() const { return transpose_a ? a.dim(1) : a.dim(0); }
  int64_t k() const { return transpose_a ? a.dim(0) : a.dim(1); }
  int64_t n() const { return transpose_b ? b.dim(0) : b.dim(1); }
  double flops() const { return 2.0 * static_cast<double>(m()) * static_cast<double>(n()) * static_cast<double>(k()); }

  void visit(auto& t) const {
    accumulate ? t.add(c) : t.out(c);
    t.in(a, b, bias);
  }
  // a, b and bias have one dtype, f32 or bf16; c has it too or is f32.
  void check() const {
    require(a.dims() == 2 && b.dims() == 2, text("matmul of ", a, " and ", b));
    expect_float(a, "a");
    require(b.dtype() == a.dtype() && (c.dtype() == a.dtype() || c.dtype() == Dtype::f32),
            text("matmul of ", a, " and ", b, " into ", c));
    require(k() == (transpose_b ? b.dim(1) : b.dim(0)), text("matmul of ", a, " and ", b));
    expect(c, "c", {m(), n()});
    if (bias) expect(bias, "bias", a.dtype(), {n()});
  }
};
void launch(const Cpu&, const Matmul&);
void launch(const Cuda&, const Matmul&);

}  // namespace trireme
