// The gate of every update of the weights: whether the step is one, and the scale of its gradients.
// Every update rule reads it from memory, so that its launches are the same in each step.
#pragma once

#include <cstdint>
#include <limits>

namespace trireme {

// A sum of squares as two f32: the sum, and the sum times kScale, for sums that f32 cannot hold. So finite elements have a finite
// norm.
struct SquaredSum {
  static constexpr int64_t kSize = 2;
  static constexpr double kScale = 0x1p-192, kRootOfScale = 0x1p-96;
  static constexpr float kLargestScaled = 0x1p64f;  // of norms that f32 can hold: smaller ones
  float plain = 0, scaled = 0;
  static constexpr SquaredSum read(const float* x) { return {.plain = x[0], .scaled = x[1]}; }
  // True if only the scaled sum is finite: the norm is above 1.8e19.
  constexpr bool large() const {
    constexpr float kLargest = std::numeric_limits<float>::max();
    return plain > kLargest && scaled > 0 && scaled <= kLargest;
  }
};

// Limits that a step must not exceed to be an update. Without a loss (0) the norm alone decides.
struct StepLimits {
  static constexpr float kLargest = std::numeric_limits<float>::max();
  float squared_norm = kLargest, loss = kLargest;
  // True if neither is above its limit, infinite or NaN. Negative limits refuse every step. A large norm passes if f32 can hold it
  // and clipping makes squares of the gradients finite.
  constexpr bool pass(const SquaredSum& sum, float mean_loss, float clip) const {
    const bool clipped =
        sum.large() && sum.scaled < SquaredSum::kLargestScaled && squared_norm == kLargest && clip > 0 && clip < 1e19f;
    return (sum.plain <= squared_norm || clipped) && mean_loss <= loss;
  }
};

// Contents of the gate.
struct Gate {
  static constexpr int64_t kSize = 4;   // f32: scale, passes (1 or 0), the step's lower bits, its upper bits
  static constexpr int kStepBits = 24;  // that an f32 holds
  float scale;                          // factor for gradients
  bool passes;   // the step is an update; otherwise gradients become 0 and nothing else changes. A NaN never reaches the weights
  int64_t step;  // counted from 1
  static constexpr Gate read(const float* gate) {
    return {.scale = gate[0],
            .passes = gate[1] != 0,
            .step = static_cast<int64_t>(gate[2]) + (static_cast<int64_t>(gate[3]) << kStepBits)};
  }
};

}  // namespace trireme
