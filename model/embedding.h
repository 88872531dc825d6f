// From token ids to the residual stream: the token's row, plus the position's row for gpt2.
#pragma once

#include "model/part.h"

namespace trireme {

struct EmbeddingWeights {
  Tensor table;      // [V, C]
  Tensor positions;  // [context, C], gpt2 only
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config);
};

// x [N, C] from the batch's tokens.
void embedding_forward(Pass& pass, const EmbeddingWeights& weights, Tensor x);
// Adds the rows of dx [N, C] to the gradients.
void embedding_backward(Pass& pass, EmbeddingWeights& gradients, Tensor dx);

}  // namespace trireme
