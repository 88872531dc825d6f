#include "kernels/ops/update_gate.h"

#include <algorithm>
#include <cmath>

namespace trireme {

void launch(const Cpu&, const StepNumbers& op) { std::ranges::copy(op.values(), op.numbers.as<float>()); }

void launch(const Cpu&, const UpdateGate& op) {
  const float *numbers = op.numbers.as<float>(), squared_norm = *op.squared_norm.as<float>(),
              loss = op.loss ? *op.loss.as<float>() : 0;
  float* gate = op.gate.as<float>();
  gate[0] = op.clip > 0 ? static_cast<float>(std::min(1.0, op.clip / std::sqrt(static_cast<double>(squared_norm)))) : 1.0f;
  gate[1] = StepNumbers::limits_of(numbers).pass(squared_norm, loss) ? 1.0f : 0.0f;
  gate[2] = numbers[0], gate[3] = numbers[1];
}

}  // namespace trireme
