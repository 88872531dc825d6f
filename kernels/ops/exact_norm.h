// Sum of squares with bits that do not depend on how elements are cut, ordered or spread over
// ranks. Squares are truncated at 2^-80 of the largest one's power of two and summed as integers.
// There are three steps; ranks combine their results after the first two: the largest magnitude (by
// max), the integers (by sum), the result.
//
// An integer is kLimbs 8-bit digits, lowest first, in f32: sums of them over up to 65793 ranks are
// exact.
#pragma once

#include "kernels/gate.h"
#include "kernels/run.h"

namespace trireme {

inline constexpr int64_t kLimbs = 16;

// top = the larger of top and every |x|; infinity for a NaN, which a maximum over ranks might lose.
struct LargestMagnitude {
  static constexpr auto name = "largest_magnitude";
  Tensor top;  // add  [1] f32
  Tensor x;    // in   any shape, f32
  void visit(auto& t) const { t.add(top), t.in(x); }
  void check() const {
    expect(top, "top", Dtype::f32, {1});
    require(x.dtype() == Dtype::f32, text("x is ", x));
  }
};
void launch(const Cpu&, const LargestMagnitude&);
void launch(const Cuda&, const LargestMagnitude&);

// limbs += the integer of x's squares, with carries: each limb is below 256 afterwards.
struct ExactSquares {
  static constexpr auto name = "exact_squares";
  Tensor limbs;   // add  [kLimbs] f32
  Tensor x, top;  // in   any shape, f32, at most 2^44 elements over all calls; [1] f32
  void visit(auto& t) const { t.add(limbs), t.in(x, top); }
  void check() const {
    expect(limbs, "limbs", Dtype::f32, {kLimbs});
    expect(top, "top", Dtype::f32, {1});
    require(x.dtype() == Dtype::f32, text("x is ", x));
  }
};
void launch(const Cpu&, const ExactSquares&);
void launch(const Cuda&, const ExactSquares&);

// total = the sum of squares as a SquaredSum; NaN if top is not finite.
struct SumOfSquares {
  static constexpr auto name = "sum_of_squares";
  Tensor total;       // out  [SquaredSum::kSize] f32
  Tensor limbs, top;  // in   [kLimbs] f32, [1] f32
  void visit(auto& t) const { t.out(total), t.in(limbs, top); }
  void check() const {
    expect(limbs, "limbs", Dtype::f32, {kLimbs});
    expect(total, "total", Dtype::f32, {SquaredSum::kSize});
    expect(top, "top", Dtype::f32, {1});
  }
};
void launch(const Cpu&, const SumOfSquares&);
void launch(const Cuda&, const SumOfSquares&);

}  // namespace trireme
