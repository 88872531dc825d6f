// Residual sum and RMS normalisation, fused (Zhang and Sennrich, "Root mean square layer normalization", 2019).
//     sum = x + residual;   y = sum * inv_rms * gain;   inv_rms = 1 / sqrt(mean(sum^2) + eps)     row by row
#pragma once

#include "kernels/run.h"

namespace trireme {

// x and sum have one dtype, y and residual one too; in a bf16 step, x may be f32.

struct RmsNormForward {
  static constexpr auto name = "rmsnorm";
  Tensor y, inv_rms;  // out  [N, C], [N] f32
  Tensor sum{};       // out  [N, C]; with residual. Rounded to its dtype before normalisation
  Tensor x, gain;     // in   [N, C], [C] f32
  Tensor residual{};  // in   [N, C], optional
  float eps = 1e-5f;
  void visit(auto& t) const { t.out(y, inv_rms, sum), t.in(x, gain, residual); }
  void check() const {
    expect_float(x, "x");
    expect_float(y, "y"), expect(y, "y", {x.rows(), x.cols()});
    require(x.dtype() == Dtype::f32 || y.dtype() == x.dtype(), text("the norm of ", x, " as ", y));
    expect(inv_rms, "inv_rms", Dtype::f32, {x.rows()});
    expect(gain, "gain", Dtype::f32, {x.cols()});
    require(sum.present() == residual.present(), text("sum and residual must be given together"));
    if (sum) {
      expect(sum, "sum", x.dtype(), {x.rows(), x.cols()});
      expect(residual, "residual", y.dtype(), {x.rows(), x.cols()});
    }
  }
};
void launch(const Cpu&, const RmsNormForward&);
void launch(const Cuda&, const RmsNormForward&);

// dx = (gradient of the normalisation) + dsum: the gradient of both x and residual. dx may be dsum or
// x, or dy if that has its dtype.
struct RmsNormBackward {
  static constexpr auto name = "rmsnorm_backward";
  Tensor dx;                    // out  [N, C]
  Tensor dgain;                 // add  [C] f32
  Tensor dy, x, gain, inv_rms;  // in   [N, C], [N, C] (what was normalised: `sum` if there was one), [C] f32, [N] f32
  Tensor dsum{};                // in   [N, C], optional: gradient of the sum from its other use
  void visit(auto& t) const { t.out(dx), t.add(dgain), t.in(dy, x, gain, inv_rms, dsum); }
  void check() const {
    expect_float(x, "x");
    expect(dx, "dx", x.dtype(), {x.rows(), x.cols()});
    expect_float(dy, "dy"), expect(dy, "dy", {x.rows(), x.cols()});
    require(x.dtype() == Dtype::f32 || dy.dtype() == x.dtype(), text("the norm of ", x, " from ", dy));
    expect(gain, "gain", Dtype::f32, {x.cols()});
    expect(dgain, "dgain", Dtype::f32, {x.cols()});
    expect(inv_rms, "inv_rms", Dtype::f32, {x.rows()});
    if (dsum) expect(dsum, "dsum", x.dtype(), {x.rows(), x.cols()});
  }
};
void launch(const Cpu&, const RmsNormBackward&);
void launch(const Cuda&, const RmsNormBackward&);

}  // namespace trireme
