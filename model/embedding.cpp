#include "model/embedding.h"

#include "kernels/ops/embedding.h"

namespace trireme {

void EmbeddingWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  visit(table, {.name = name + ".tokens", .shape = {config.vocab, config.width}, .init = Init::normal});
  if (config.family == Family::gpt2)
    visit(positions, {.name = name + ".positions", .shape = {config.context, config.width}, .init = Init::position});
}

void embedding_forward(Pass& pass, const EmbeddingWeights& weights, Tensor x) {
  run(pass.stream, EmbeddingForward{.x = x,
                                    .tokens = pass.batch.tokens,
                                    .table = weights.table,
                                    .positions = weights.positions ? pass.batch.positions : Tensor{},
                                    .position_table = weights.positions});
}

void embedding_backward(Pass& pass, EmbeddingWeights& gradients, Tensor dx) {
  run(pass.stream, EmbeddingBackward{.dtable = gradients.table,
                                     .dposition_table = gradients.positions,
                                     .dx = dx,
                                     .tokens = pass.batch.tokens,
                                     .positions = gradients.positions ? pass.batch.positions : Tensor{}});
}

}  // namespace trireme
