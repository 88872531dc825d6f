#include "model/linear.h"

#include "kernels/ops/fill.h"
#include "kernels/ops/matmul.h"

namespace trireme {

void linear_forward(Pass& pass, Tensor w, Tensor bias, Tensor x, Tensor y) {
  run(pass.stream, Matmul{.c = y, .a = x, .b = w, .bias = bias, .transpose_b = true});
}

void linear_backward_input(Pass& pass, Tensor w, Tensor dy, Tensor dx) { run(pass.stream, Matmul{.c = dx, .a = dy, .b = w}); }

void linear_backward_weight(Pass& pass, Tensor dw, Tensor dbias, Tensor x, Tensor dy) {
  const bool along = pass.fused_products;
  if (dbias && !along) run(pass.stream, BiasBackward{.dbias = dbias, .dy = dy});
  run(pass.stream, Matmul{.c = dw, .a = dy, .b = x, .sums = along ? dbias : Tensor{}, .transpose_a = true, .accumulate = true});
}

}  // namespace trireme
