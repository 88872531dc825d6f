// Weights in 8 bits, for generating text. Each row of a weight, which makes one output, has its own scale: its largest |w| / 127
// (Dettmers et al., "LLM.int8(): 8-bit matrix multiplication for transformers at scale", 2022, row-wise scaling). Activations
// keep their dtype, and sums are f32.
#pragma once

#include "kernels/int8_scale.h"
#include "kernels/run.h"

namespace trireme {

// y = x / scales, rounded to the nearest integer.
struct RoundToInt8 {
  static constexpr auto name = "round_to_int8";
  Tensor y;       // out  [O, I] i8
  Tensor scales;  // out  [O] f32; NaN for a row with an element that is not finite
  Tensor x;       // in   [O, I] f32 or bf16
  void visit(auto& t) const { t.out(y, scales), t.in(x); }
  void check() const {
    expect_float(x, "x");
    expect(x, "x", {x.rows(), x.cols()});
    expect(y, "y", Dtype::i8, {x.rows(), x.cols()});
    expect(scales, "scales", Dtype::f32, {x.rows()});
  }
};
void launch(const Cpu&, const RoundToInt8&);
void launch(const Cuda&, const RoundToInt8&);

// y = x (scales w)^T + bias.
struct Int8Product {
  static constexpr auto name = "int8_product";
  Tensor y;       // out  [N, O] f32 or bf16
  Tensor x;       // in   [N, I] f32 or bf16
  Tensor w;       // in   [O, I] i8
  Tensor scales;  // in   [O] f32
  Tensor bias{};  // in   [O] f32, optional
  double flops() const { return 2.0 * static_cast<double>(y.size()) * static_cast<double>(x.cols()); }
  void visit(auto& t) const { t.out(y), t.in(x, w, scales, bias); }
  void check() const {
    expect_float(x, "x"), expect_float(y, "y");
    expect(x, "x", {x.rows(), x.cols()});
    expect(w, "w", Dtype::i8, {w.rows(), x.cols()});
    expect(y, "y", {x.rows(), w.rows()});
    expect(scales, "scales", Dtype::f32, {w.rows()});
    if (bias) expect(bias, "bias", Dtype::f32, {w.rows()});
  }
};
void launch(const Cpu&, const Int8Product&);
void launch(const Cuda&, const Int8Product&);

}  // namespace trireme
