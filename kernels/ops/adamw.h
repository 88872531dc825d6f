// AdamW in one pass (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), and the gradient norm it clips by.
#pragma once

#include "kernels/run.h"

namespace trireme {

// total += sum(x^2), in double, in one fixed order whatever the number of threads.
struct SquaredNorm {
  static constexpr auto name = "squared_norm";
  Tensor total;  // add  [1] f32
  Tensor x;      // in   any shape, f32
  void visit(auto& t) const { t.add(total), t.in(x); }
  void check() const {
    expect(total, "total", Dtype::f32, {1});
    require(x.dtype() == Dtype::f32, text("x is ", x));
  }
};
void launch(const Cpu&, const SquaredNorm&);
void launch(const Cuda&, const SquaredNorm&);

//     g = grad * min(1, clip / sqrt(squared_norm));   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//     master -= lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * master);   weight = master rounded;   grad = 0
// Without `weight` the master itself is the step's weight (f32). Nothing changes but grad = 0 where squared_norm is not finite:
// a NaN never reaches the weights.
struct AdamW {
  static constexpr auto name = "adamw";
  Tensor weight{};            // out  [n] bf16, optional
  Tensor master, m, v, grad;  // add  [n] f32 each
  Tensor squared_norm;        // in   [1] f32: of all gradients of the model
  float lr, beta1, beta2, eps, decay;
  float clip;    // 0: no clipping
  int64_t step;  // t, counted from 1
  void visit(auto& t) const { t.out(weight), t.add(master, m, v, grad), t.in(squared_norm); }
  void check() const {
    const int64_t n = master.size();
    expect(master, "master", Dtype::f32, {n});
    expect(m, "m", Dtype::f32, {n});
    expect(v, "v", Dtype::f32, {n});
    expect(grad, "grad", Dtype::f32, {n});
    expect(squared_norm, "squared_norm", Dtype::f32, {1});
    if (weight) expect(weight, "weight", Dtype::bf16, {n});
    require(step >= 1, text("adamw at step ", step));
  }
};
void launch(const Cpu&, const AdamW&);
void launch(const Cuda&, const AdamW&);

}  // namespace trireme
