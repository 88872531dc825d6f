// The norm of either family: LayerNorm (gpt2) or RMSNorm (llama), fused with the sum of the residual stream.
#pragma once

#include "model/part.h"

namespace trireme {

struct NormWeights {
  Tensor gain;  // [C]
  Tensor bias;  // [C], gpt2 only
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config);
};

struct NormSaved {
  Tensor sum;            // [N, C] what was normalised; where nothing is to be added, the input itself
  Tensor y;              // [N, C] the result
  Tensor mean, inverse;  // [N] f32; mean for gpt2 only
  void take(Arena& arena, const ModelConfig& config, int64_t size, Dtype dtype);
};

// saved.y = norm(saved.sum), saved.sum = in.x + in.delta: the stream from here on. Without a delta, in.x must be saved.sum.
void norm_forward(Pass& pass, const NormWeights& weights, const NormSaved& saved, const Residual& in);
// d: in, the gradient of saved.sum from its other use (`fresh`: there is none and d is only written); out, of the input. dy [N, C].
void norm_backward(Pass& pass, const NormWeights& weights, NormWeights& gradients, const NormSaved& saved, Tensor dy, Tensor d,
                   bool fresh);

}  // namespace trireme
