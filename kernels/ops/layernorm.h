// Residual sum and layer normalisation, fused (Ba, Kiros and Hinton, "Layer normalization", 2016).
//     sum = x + residual;   y = (sum - mean) * inv_std * gain + bias;   inv_std = 1 / sqrt(var(sum) + eps)     row by row
#pragma once

#include "kernels/run.h"

namespace trireme {

// x and sum have one dtype, y and residual one too; in a bf16 step, x may be f32.

struct LayerNormForward {
  static constexpr auto name = "layernorm";
  Tensor y, mean, inv_std;  // out  [N, C], [N] f32, [N] f32
  Tensor sum{};             // out  [N, C]; with residual. Rounded to its dtype before normalisation
  Tensor x, gain, bias;     // in   [N, C], [C] f32, [C] f32
  Tensor residual{};        // in   [N, C], optional
  float eps = 1e-5f;
  void visit(auto& t) const { t.out(y, mean, inv_std, sum), t.in(x, gain, bias, residual); }
  void check() const {
    expect_float(x, "x");
    expect_float(y, "y"), expect(y, "y", {x.rows(), x.cols()});
    require(x.dtype() == Dtype::f32 || y.dtype() == x.dtype(), text("the norm of ", x, " as ", y));
    expect(mean, "mean", Dtype::f32, {x.rows()});
    expect(inv_std, "inv_std", Dtype::f32, {x.rows()});
    expect(gain, "gain", Dtype::f32, {x.cols()});
    expect(bias, "bias", Dtype::f32, {x.cols()});
    require(sum.present() == residual.present(), text("sum and residual must be given together"));
    if (sum) {
      expect(sum, "sum", x.dtype(), {x.rows(), x.cols()});
      expect(residual, "residual", y.dtype(), {x.rows(), x.cols()});
    }
  }
};
void launch(const Cpu&, const LayerNormForward&);
void launch(const Cuda&, const LayerNormForward&);

// dx = (gradient of the normalisation) + dsum: the gradient of both x and residual. dx may be dsum or
// x, or dy if that has its dtype.
struct LayerNormBackward {
  static constexpr auto name = "layernorm_backward";
  Tensor dx;                          // out  [N, C]
  Tensor dgain, dbias;                // add  [C] f32, [C] f32
  Tensor dy, x, gain, mean, inv_std;  // in   [N, C], [N, C] (what was normalised), [C] f32, [N] f32, [N] f32
  Tensor dsum{};                      // in   [N, C], optional: gradient of the sum from its other use
  void visit(auto& t) const { t.out(dx), t.add(dgain, dbias), t.in(dy, x, gain, mean, inv_std, dsum); }
  void check() const {
    expect_float(x, "x");
    expect(dx, "dx", x.dtype(), {x.rows(), x.cols()});
    expect_float(dy, "dy"), expect(dy, "dy", {x.rows(), x.cols()});
    require(x.dtype() == Dtype::f32 || dy.dtype() == x.dtype(), text("the norm of ", x, " from ", dy));
    expect(gain, "gain", Dtype::f32, {x.cols()});
    expect(dgain, "dgain", Dtype::f32, {x.cols()});
    expect(dbias, "dbias", Dtype::f32, {x.cols()});
    expect(mean, "mean", Dtype::f32, {x.rows()});
    expect(inv_std, "inv_std", Dtype::f32, {x.rows()});
    if (dsum) expect(dsum, "dsum", x.dtype(), {x.rows(), x.cols()});
  }
};
void launch(const Cpu&, const LayerNormBackward&);
void launch(const Cuda&, const LayerNormBackward&);

}  // namespace trireme
