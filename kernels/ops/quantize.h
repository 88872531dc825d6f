// y = x / scale in 8 bits, scale = max |x| / the largest number of y's dtype. NVIDIA's Transformer
// Engine calls this current scaling of a whole tensor (Micikevicius et al., "FP8 formats for deep
// learning", 2022). Computes y, y^T or both: products need operands whose rows they sum along.
#pragma once

#include <bit>

#include "kernels/run.h"

namespace trireme {

struct Quantize {
  static constexpr auto name = "quantize";
  Tensor scale;         // out  [1] f32; NaN or infinite if an element of x is
  Tensor x;             // in   [N, C] f32 or bf16
  Tensor y{};           // out  [N, C] e4m3 or e5m2, optional
  Tensor transposed{};  // out  [C, N] likewise, of y's dtype if both are there

  Dtype dtype() const { return y ? y.dtype() : transposed.dtype(); }
  void visit(auto& t) const { t.out(scale, y, transposed), t.in(x); }
  void check() const {
    expect_float(x, "x");
    expect(x, "x", {x.rows(), x.cols()});
    expect(scale, "scale", Dtype::f32, {1});
    require(y || transposed, text("quantize of ", x, " needs y or transposed"));
    require(is_float8(dtype()), text("quantize into ", name_of(dtype()), ", expected e4m3 or e5m2"));
    if (y) expect(y, "y", {x.rows(), x.cols()});
    if (transposed) expect(transposed, "transposed", dtype(), {x.cols(), x.rows()});
  }
};
void launch(const Cpu&, const Quantize&);
void launch(const Cuda&, const Quantize&);

// Scale that all back-ends compute to the same bits: elements are multiplied by `inverse` and
// rounded. `magnitude` is the bits of the largest |x|; those of a NaN are the largest. Tensors of
// zeros get a scale above 0.
struct QuantizeScale {
  float scale, inverse;
};
template <class T>
constexpr QuantizeScale quantize_scale(uint32_t magnitude) {
  constexpr uint32_t kLeast = 0x0d800000u;  // 2^-100: smaller tensors lose digits
  const float most = std::bit_cast<float>(magnitude < kLeast ? kLeast : magnitude);
  return {.scale = most / T::largest(), .inverse = T::largest() / most};
}

}  // namespace trireme
