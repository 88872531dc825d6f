// Computes the gate of an update from the step's numbers, its gradient norm and its loss: see
// kernels/gate.h.
#pragma once

#include <array>

#include "kernels/gate.h"
#include "kernels/run.h"

namespace trireme {

// Inputs of the gate that change from step to step.
struct StepNumbers {
  static constexpr auto name = "step_numbers";
  static constexpr int64_t kSize = 4;
  Tensor numbers;  // out  [kSize] f32: t's lower bits, t's upper bits, both limits
  int64_t step;    // t, counted from 1
  StepLimits limits{};
  void visit(auto& t) const { t.out(numbers); }
  void check() const {
    expect(numbers, "numbers", Dtype::f32, {kSize});
    require(step >= 1, text("an update at step ", step));
  }
  std::array<float, kSize> values() const {
    const int64_t upper = step >> Gate::kStepBits, lower = step - (upper << Gate::kStepBits);
    return {static_cast<float>(lower), static_cast<float>(upper), limits.squared_norm, limits.loss};
  }
  static constexpr StepLimits limits_of(const float* numbers) { return {.squared_norm = numbers[2], .loss = numbers[3]}; }
};
void launch(const Cpu&, const StepNumbers&);
void launch(const Cuda&, const StepNumbers&);

// scale = min(1, clip / sqrt(squared_norm));   passes = StepLimits::pass()
struct UpdateGate {
  static constexpr auto name = "update_gate";
  Tensor gate;          // out  [Gate::kSize] f32: scale, passes (1 or 0), t's lower bits, t's upper bits
  Tensor numbers;       // in   [StepNumbers::kSize] f32
  Tensor squared_norm;  // in   [SquaredSum::kSize] f32: of all gradients of the model
  Tensor loss{};        // in   [1] f32, optional: the step's
  float clip;           // 0: no clipping
  void visit(auto& t) const { t.out(gate), t.in(numbers, squared_norm, loss); }
  void check() const {
    expect(gate, "gate", Dtype::f32, {Gate::kSize});
    expect(numbers, "numbers", Dtype::f32, {StepNumbers::kSize});
    expect(squared_norm, "squared_norm", Dtype::f32, {SquaredSum::kSize});
    if (loss) expect(loss, "loss", Dtype::f32, {1});
  }
};
void launch(const Cpu&, const UpdateGate&);
void launch(const Cuda&, const UpdateGate&);

}  // namespace trireme
