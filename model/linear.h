// A product with a weight, as every part uses it: y = x w^T + b, and its gradients.
#pragma once

#include "model/part.h"

namespace trireme {

// y [N, O] = x [N, I] w^T + bias; w [O, I], bias [O] or absent.
void linear_forward(Pass& pass, Tensor w, Tensor bias, Tensor x, Tensor y);
// dx [N, I] = dy w.
void linear_backward_input(Pass& pass, Tensor w, Tensor dy, Tensor dx);
// dw += dy^T x;  dbias += column sums of dy, where there is a bias.
void linear_backward_weight(Pass& pass, Tensor dw, Tensor dbias, Tensor x, Tensor dy);

}  // namespace trireme
