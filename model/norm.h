// The norm of either family, LayerNorm (gpt2) or RMSNorm (llama), fused with the addition of the
// residual stream.
#pragma once

#include "model/part.h"

namespace trireme {

struct NormWeights {
  Tensor gain;  // [C]
  Tensor bias;  // [C], gpt2 only
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config);
};

struct NormSaved {
  Tensor sum;            // [own, C] the stream, normalised: the input itself without a delta; after backward its gradient
  Tensor y;              // [own, C] the result
  Tensor mean, inverse;  // [own] f32; mean for gpt2 only
  struct Shape {
    int64_t rows;
    Dtype dtype, residual;  // of y; of sum
    bool keeps_sum = true;  // false: sum is elsewhere
  };
  // `y`: memory to use; absent: takes its own.
  void take(Arena& arena, const ModelConfig& config, const Shape& shape, Tensor y = {});
};

// saved.y = norm(saved.sum) with saved.sum = in.x + in.delta, the stream from here on. Without a
// delta, in.x must be saved.sum.
void norm_forward(Pass& pass, const NormWeights& weights, const NormSaved& saved, const Residual& in);
struct NormBackward {
  Tensor dy;      // [own, C] the gradient of the result
  Tensor dsum{};  // [own, C] gradient of saved.sum from its other use, if any
};
// saved.sum becomes its gradient. Adds to the weights' gradients.
void norm_backward(Pass& pass, const Trained<NormWeights>& norm, const NormSaved& saved, const NormBackward& from);

}  // namespace trireme
