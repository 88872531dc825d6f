#include "model/linear.h"

#include "kernels/ops/fill.h"
#include "kernels/ops/int8_weights.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "model/int8_weight.h"

namespace trireme {
namespace {

struct Scaled {
  Tensor values, scale;
};

Tensor take_scale(Pass& pass) { return pass.temporaries.take(Dtype::f32, {1}); }

// Rounds x to 8 bits; with `kept` also its transpose.
Scaled quantize(Pass& pass, Dtype dtype, const Tensor& x, const KeptGradient& kept = {}) {
  const Scaled to{.values = pass.temporaries.take(dtype, {x.dim(0), x.dim(1)}),
                  .scale = kept.scale ? kept.scale : take_scale(pass)};
  run(pass.stream, Quantize{.scale = to.scale, .x = x, .y = to.values, .transposed = kept.transposed});
  return to;
}

Scaled quantize_transposed(Pass& pass, Dtype dtype, const Tensor& x) {
  const Scaled to{.values = pass.temporaries.take(dtype, {x.dim(1), x.dim(0)}), .scale = take_scale(pass)};
  run(pass.stream, Quantize{.scale = to.scale, .x = x, .transposed = to.values});
  return to;
}

Scaled forward_weight(Pass& pass, const LinearWeight& weight) {
  const RoundedWeight& kept = weight.rounded;
  if (!kept.values) return quantize(pass, Dtype::e4m3, weight.w);
  if (pass.new_weights)
    run(pass.stream, Quantize{.scale = kept.scale, .x = weight.w, .y = kept.values, .transposed = kept.transposed});
  return {.values = kept.values, .scale = kept.scale};
}

Scaled backward_weight(Pass& pass, const LinearWeight& weight) {
  const RoundedWeight& kept = weight.rounded;
  if (!kept.transposed) return quantize_transposed(pass, Dtype::e4m3, weight.w);
  return {.values = kept.transposed, .scale = kept.scale};
}

// Gives `op` these operands, along whose rows it sums.
Matmul of_8_bits(Matmul op, const Scaled& a, const Scaled& b) {
  op.a = a.values, op.a_scale = a.scale;
  op.b = b.values, op.b_scale = b.scale;
  op.transpose_a = false, op.transpose_b = true;
  return op;
}

}  // namespace

KeptGradient keep_gradient(Pass& pass, int64_t out) {
  if (!pass.fp8) return {};
  return {.transposed = pass.temporaries.take(Dtype::e5m2, {out, pass.size()}), .scale = take_scale(pass)};
}

void multiply(Pass& pass, Tensor y, Tensor x, Tensor w, Tensor bias) {
  if (w.dtype() == Dtype::i8)
    run(pass.stream, Int8Product{.y = y, .x = x, .w = w, .scales = scales_of(w), .bias = bias});
  else
    run(pass.stream, Matmul{.c = y, .a = x, .b = w, .bias = bias, .transpose_b = true});
}

void linear_forward(Pass& pass, const LinearWeight& weight, const PartForward& rows, Tensor pre_activation) {
  if (!pass.fp8 && !pre_activation) return multiply(pass, rows.y, rows.x, weight.w, weight.bias);
  const Frame frame(pass.temporaries);
  Matmul op{.c = rows.y, .a = rows.x, .b = weight.w, .bias = weight.bias, .pre_activation = pre_activation, .transpose_b = true};
  if (pass.fp8) {
    const Scaled left = quantize(pass, Dtype::e4m3, rows.x), right = forward_weight(pass, weight);
    op = of_8_bits(op, left, right);
  }
  run(pass.stream, op);
}

void linear_backward_input(Pass& pass, const LinearWeight& weight, const PartBackwardInput<KeptGradient>& rows, Tensor gelu_input) {
  const Frame frame(pass.temporaries);
  Matmul op{.c = rows.dx, .a = rows.dy, .b = weight.w, .gelu_input = gelu_input};
  if (pass.fp8) {
    const Scaled left = quantize(pass, Dtype::e5m2, rows.dy, rows.keep), right = backward_weight(pass, weight);
    op = of_8_bits(op, left, right);
  }
  run(pass.stream, op);
}

void linear_backward_weight(Pass& pass, const LinearWeight& gradient, const PartBackwardWeight<KeptGradient>& rows) {
  const Frame frame(pass.temporaries);
  const Tensor dbias = gradient.bias;
  const bool along = pass.fused_products && !pass.fp8;  // f32 sums of unrounded addends
  if (dbias && !along) run(pass.stream, BiasBackward{.dbias = dbias, .dy = rows.dy});
  Matmul op{.c = gradient.w,
            .a = rows.dy,
            .b = rows.x,
            .sums = along ? dbias : Tensor{},
            .transpose_a = true,
            .accumulate = !pass.new_gradients};
  if (pass.fp8) {
    const KeptGradient& kept = rows.kept;
    const Scaled left = kept.transposed ? Scaled{kept.transposed, kept.scale} : quantize_transposed(pass, Dtype::e5m2, rows.dy);
    const Scaled right = quantize_transposed(pass, Dtype::e4m3, rows.x);
    op = of_8_bits(op, left, right);
  }
  run(pass.stream, op);
}

}  // namespace trireme
