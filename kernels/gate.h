// The gate of every update of the weights: whether the step is one, and the scale of its gradients.
// Every update rule reads it from memory, so that its launches are the same in each step.
#pragma once

#include <cstdint>
#include <limits>

namespace trireme {

// Limits that a step must not exceed to be an update. Without a loss (0) the norm alone decides.
struct StepLimits {
  static constexpr float kLargest = std::numeric_limits<float>::max();
  float squared_norm = kLargest, loss = kLargest;
  // True if neither is above its limit, infinite or NaN. Negative limits refuse every step.
  constexpr bool pass(float norm2, float mean_loss) const { return norm2 <= squared_norm && mean_loss <= loss; }
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
