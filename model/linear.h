// A product with a weight, as every part uses it: y = x w^T + b, and its gradients. With Pass::fp8 both operands of each product
// are rounded to 8 bits first: weights and activations to e4m3, gradients to e5m2.
#pragma once

#include "model/part.h"

namespace trireme {

// dy^T in 8 bits: the gradient of the input rounds dy, and leaves it here for that of the weight, which comes later in the same
// pass.
struct KeptGradient {
  Tensor transposed{};  // [O, N] e5m2; absent: nothing is kept
  Tensor scale{};       // [1] f32
};
// Memory for it, of the pass's temporaries; absent where the products are not of 8 bits.
KeptGradient keep_gradient(Pass& pass, int64_t out);

// The weight of a product, or its gradient.
struct LinearWeight {
  Tensor w;     // [O, I]
  Tensor bias;  // [O] or absent
};

// y [N, O] = x [N, I] w^T + bias. With pre_activation [N, O], that is what it says, and y = gelu of it.
void linear_forward(Pass& pass, const LinearWeight& weight, const PartForward& rows, Tensor pre_activation = {});
// dx [N, I] = dy w; with gelu_input [N, I], which dx may be with Pass::fused_products, times gelu' of it.
void linear_backward_input(Pass& pass, Tensor w, const PartBackwardInput<KeptGradient>& rows, Tensor gelu_input = {});
// gradient.w += dy^T x;  gradient.bias += column sums of dy, where there is a bias.
void linear_backward_weight(Pass& pass, const LinearWeight& gradient, const PartBackwardWeight<KeptGradient>& rows);

}  // namespace trireme
