#include "kernels/ops/update_gate.h"

#include <algorithm>
#include <cmath>

namespace trireme {

void launch(const Cpu&, const StepNumbers& op) { std::ranges::copy(op.values(), op.numbers.as<float>()); }

void launch(const Cpu&, const UpdateGate& op) {
  const float *numbers = op.numbers.as<float>(), loss = op.loss ? *op.loss.as<float>() : 0;
  const SquaredSum sum = SquaredSum::read(op.squared_norm.as<float>());
  const double norm = sum.large() ? std::sqrt(static_cast<double>(sum.scaled)) / SquaredSum::kRootOfScale
                                  : std::sqrt(static_cast<double>(sum.plain));
  float* gate = op.gate.as<float>();
  gate[0] = op.clip > 0 ? static_cast<float>(std::min(1.0, op.clip / norm)) : 1.0f;
  gate[1] = StepNumbers::limits_of(numbers).pass(sum, loss, op.clip) ? 1.0f : 0.0f;
  gate[2] = numbers[0], gate[3] = numbers[1];
}

}  // namespace trireme
