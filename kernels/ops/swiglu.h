// y = silu(gate) * up,  silu(z) = z / (1 + exp(-z))   (Shazeer, "GLU variants improve transformer", 2020).
#pragma once

#include "kernels/run.h"

namespace trireme {

struct SwiGluForward {
  static constexpr auto name = "swiglu";
  Tensor y;  // out  [N, F]
  Tensor x;  // in   [N, 2 F]: a row is all of gate, then all of up
  void visit(auto& t) const { t.out(y), t.in(x); }
  void check() const {
    expect_float(x, "x");
    expect(y, "y", x.dtype(), {x.rows(), x.cols() / 2});
    expect(x, "x", {y.rows(), 2 * y.cols()});
  }
};
void launch(const Cpu&, const SwiGluForward&);
void launch(const Cuda&, const SwiGluForward&);

// dx may be x.
struct SwiGluBackward {
  static constexpr auto name = "swiglu_backward";
  Tensor dx;     // out  [N, 2 F]
  Tensor dy, x;  // in   [N, F], [N, 2 F]
  void visit(auto& t) const { t.out(dx), t.in(dy, x); }
  void check() const {
    expect_float(x, "x");
    expect(dy, "dy", x.dtype(), {x.rows(), x.cols() / 2});
    expect(dx, "dx", x.dtype(), {x.rows(), 2 * dy.cols()});
  }
};
void launch(const Cpu&, const SwiGluBackward&);
void launch(const Cuda&, const SwiGluBackward&);

}  // namespace trireme
