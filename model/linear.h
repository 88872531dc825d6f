// A product with a weight, as every part uses it: y = x w^T + b, and its three gradients.
#pragma once

#include "model/part.h"

namespace trireme {

// y [N, O] = x [N, I] w^T + bias; w [O, I], bias [O] or absent.
void linear_forward(Pass& pass, Tensor w, Tensor bias, Tensor x, Tensor y);
// dx [N, I] = dy w;  dw += dy^T x;  dbias += column sums of dy, where there is a bias.
void linear_backward(Pass& pass, Tensor w, Tensor dw, Tensor dbias, Tensor x, Tensor dy, Tensor dx);

}  // namespace trireme
