#include "kernels/cuda/tile.cuh"
#include "kernels/ops/update_gate.h"

namespace trireme {
namespace {

__global__ void write_step_numbers(float* numbers, std::array<float, StepNumbers::kSize> values) {
  for (int i = 0; i < StepNumbers::kSize; ++i) numbers[i] = values[i];
}

__global__ void write_gate(float* gate, const float* numbers, const float* squared_norm, const float* loss, float clip) {
  const SquaredSum sum = SquaredSum::read(squared_norm);
  const float share = sum.large() ? static_cast<float>(clip / (sqrt(static_cast<double>(sum.scaled)) / SquaredSum::kRootOfScale))
                                  : clip / sqrtf(sum.plain);
  gate[0] = clip > 0 ? min(1.0f, share) : 1.0f;
  gate[1] = StepNumbers::limits_of(numbers).pass(sum, loss == nullptr ? 0 : *loss, clip) ? 1.0f : 0.0f;
  gate[2] = numbers[0];
  gate[3] = numbers[1];
}

}  // namespace

void launch(const Cuda& cuda, const StepNumbers& op) {
  start(cuda, {.blocks = 1, .threads = 1}, write_step_numbers, op.numbers.as<float>(), op.values());
}

void launch(const Cuda& cuda, const UpdateGate& op) {
  start(cuda, {.blocks = 1, .threads = 1}, write_gate, op.gate.as<float>(), op.numbers.as<float>(), op.squared_norm.as<float>(),
        op.loss ? op.loss.as<float>() : nullptr, op.clip);
}

}  // namespace trireme
