// The gate before every update of the weights: whether a step is one, and by what its gradients are scaled. Whatever the rule of
// the update, it reads this from memory, so that its launches are the same in each step.
#pragma once

#include <cstdint>
#include <limits>

namespace trireme {

// What a step may have at most and still be an update. Without a loss (0) the norm alone decides.
struct StepLimits {
  static constexpr float kLargest = std::numeric_limits<float>::max();
  float squared_norm = kLargest, loss = kLargest;
  // Neither above its limit, infinite or no number. Negative limits refuse every step.
  constexpr bool pass(float norm2, float mean_loss) const { return norm2 <= squared_norm && mean_loss <= loss; }
};

// What an update finds.
struct Gate {
  static constexpr int64_t kSize = 4;   // f32: scale, passes (1 or 0), the step's lower bits, its upper bits
  static constexpr int kStepBits = 24;  // that an f32 holds
  float scale;                          // of gradients
  bool passes;   // the step is an update: else nothing changes but that gradients become 0. A NaN never reaches the weights
  int64_t step;  // counted from 1
  static constexpr Gate read(const float* gate) {
    return {.scale = gate[0],
            .passes = gate[1] != 0,
            .step = static_cast<int64_t>(gate[2]) + (static_cast<int64_t>(gate[3]) << kStepBits)};
  }
};

}  // namespace trireme
