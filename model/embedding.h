// Embedding: token ids to the residual stream, by the token's row plus, for gpt2, the position's
// row. Each shard has a part of the vocabulary; the first also has the positions.
#pragma once

#include "model/part.h"

namespace trireme {

struct EmbeddingWeights {
  std::vector<Tensor> tables;  // of each of this rank's shards, [V, C]
  Tensor positions;            // [context, C], gpt2's first shard only
  // `config` is the whole model's. Tables and positions are declared apart, since a tied head
  // shares only the tables.
  void declare_tables(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const TensorParallel& tensor);
  void declare_positions(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                         const TensorParallel& tensor);
};

// x [own, C] from the batch's tokens.
void embedding_forward(Pass& pass, const EmbeddingWeights& weights, Tensor x);
// Adds the rows of dx [own, C] to the gradients.
void embedding_backward(Pass& pass, EmbeddingWeights& gradients, Tensor dx);

// Specification of a shard's rows of a [vocab, C] weight.
WeightSpec vocab_spec(const std::string& name, const ModelConfig& config, const Shard& shard);

}  // namespace trireme
