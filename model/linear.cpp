#include "model/linear.h"

#include "kernels/ops/fill.h"
#include "kernels/ops/matmul.h"

namespace trireme {

void linear_forward(Pass& pass, Tensor w, Tensor bias, Tensor x, Tensor y) {
  run(pass.stream, Matmul{.c = y, .a = x, .b = w, .bias = bias, .transpose_b = true});
}

void linear_backward(Pass& pass, Tensor w, Tensor dw, Tensor dbias, Tensor x, Tensor dy, Tensor dx) {
  if (dbias) run(pass.stream, BiasBackward{.dbias = dbias, .dy = dy});
  run(pass.stream, Matmul{.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = true});
  run(pass.stream, Matmul{.c = dx, .a = dy, .b = w});
}

}  // namespace trireme
