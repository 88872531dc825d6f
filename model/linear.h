// Product with a weight, as every part uses it: y = x w^T + b, and its gradients. With Pass::fp8,
// both operands of each product are first rounded to 8 bits: weights and activations to e4m3,
// gradients to e5m2.
#pragma once

#include "model/part.h"

namespace trireme {

// dy^T in 8 bits: the input's backward rounds dy and leaves the result here for the weight's
// backward, later in the same pass.
struct KeptGradient {
  Tensor transposed{};  // [O, N] e5m2; absent: nothing kept
  Tensor scale{};       // [1] f32
};
// Takes memory for it from the pass's temporaries; absent unless the products are 8-bit.
KeptGradient keep_gradient(Pass& pass, int64_t out);

// The weight of a product, or its gradient.
struct LinearWeight {
  Tensor w;                 // [O, I]
  Tensor bias{};            // [O] or absent
  RoundedWeight rounded{};  // memory for w in 8 bits: the first forward of a step fills it, others read it
};

// y [N, O] = x [N, I] w^T + bias, with w [O, I] in the step's dtype or, for generation, in 8 bits.
void multiply(Pass& pass, Tensor y, Tensor x, Tensor w, Tensor bias = {});

// y [N, O] = x [N, I] w^T + bias. If given, pre_activation [N, O] gets this value, and y = gelu of
// it.
void linear_forward(Pass& pass, const LinearWeight& weight, const PartForward& rows, Tensor pre_activation = {});
// dx [N, I] = dy weight.w; with gelu_input [N, I], times gelu' of it.
void linear_backward_input(Pass& pass, const LinearWeight& weight, const PartBackwardInput<KeptGradient>& rows,
                           Tensor gelu_input = {});
// gradient.w += dy^T x; gradient.bias += column sums of dy, if there is a bias.
void linear_backward_weight(Pass& pass, const LinearWeight& gradient, const PartBackwardWeight<KeptGradient>& rows);

}  // namespace trireme
