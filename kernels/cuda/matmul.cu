#include "kernels/cuda/products.cuh"
#include "kernels/ops/matmul.h"

namespace trireme {

void launch(const Cuda& cuda, const Matmul& op) {
  if (op.c.size() == 0 || (op.k() == 0 && op.accumulate)) return;
  require(op.k() > 0, text("matmul of ", op.a, " and ", op.b, ": a sum over nothing"));
  multiply(cuda, {.c = op.c.data(),
                  .a = op.a.data(),
                  .b = op.b.data(),
                  .bias = op.bias ? op.bias.data() : nullptr,
                  .of_c = op.c.dtype(),
                  .of_inputs = op.a.dtype(),
                  .m = op.m(),
                  .n = op.n(),
                  .k = op.k(),
                  .transpose_a = op.transpose_a,
                  .transpose_b = op.transpose_b,
                  .accumulate = op.accumulate});
}

}  // namespace trireme
