// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the tanh form of GELU, as in GPT-2 (Hendrycks
// and Gimpel, 2016).
#pragma once

#include "kernels/run.h"

namespace trireme {

struct GeluForward {
  static constexpr auto name = "gelu";
  Tensor y;  // out  any shape
  Tensor x;  // in   the same
  void visit(auto& t) const { t.out(y), t.in(x); }
  void check() const {
    expect_float(x, "x");
    require(y.same_shape(x) && y.dtype() == x.dtype(), text("gelu of ", x, " into ", y));
  }
};
void launch(const Cpu&, const GeluForward&);
void launch(const Cuda&, const GeluForward&);

// dx may be dy or x.
struct GeluBackward {
  static constexpr auto name = "gelu_backward";
  Tensor dx;     // out  any shape
  Tensor dy, x;  // in   the same
  void visit(auto& t) const { t.out(dx), t.in(dy, x); }
  void check() const {
    expect_float(x, "x");
    require(dx.same_shape(x) && dy.same_shape(x) && dx.dtype() == x.dtype() && dy.dtype() == x.dtype(),
            text("gelu backward of ", x, " with ", dy));
  }
};
void launch(const Cpu&, const GeluBackward&);
void launch(const Cuda&, const GeluBackward&);

}  // namespace trireme
