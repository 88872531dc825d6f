// From token ids to the residual stream: the token's row, plus the position's row for gpt2. Each shard has its part of the
// vocabulary, the first one the positions.
#pragma once

#include "model/part.h"

namespace trireme {

struct EmbeddingWeights {
  std::vector<Tensor> tables;  // [V, C] of each shard of this rank
  Tensor positions;            // [context, C], gpt2's first shard only
  // config: of the whole model. The two are declared apart, since a tied head shares the first alone.
  void declare_tables(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const TensorParallel& tensor);
  void declare_positions(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                         const TensorParallel& tensor);
};

// x [own, C] from the batch's tokens.
void embedding_forward(Pass& pass, const EmbeddingWeights& weights, Tensor x);
// Adds the rows of dx [own, C] to the gradients.
void embedding_backward(Pass& pass, EmbeddingWeights& gradients, Tensor dx);

// The specification of the rows of a [vocab, C] weight that a shard has.
WeightSpec vocab_spec(const std::string& name, const ModelConfig& config, const Shard& shard);

}  // namespace trireme
