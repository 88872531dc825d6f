#include "model/embedding.h"

#include "kernels/ops/embedding.h"
#include "model/shard_sum.h"
#include "parallel/collectives.h"

namespace trireme {

WeightSpec vocab_spec(const std::string& name, const ModelConfig& config, const Shard& shard) {
  const VocabRange range = vocab_range(config, shard);
  return {.name = name,
          .shape = {shard_config(config, shard.count).vocab, config.width},
          .init = Init::normal,
          .pieces = {{.name = "", .rows = range.valid, .first = range.first, .all = config.vocab}}};
}

void EmbeddingWeights::declare_tables(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                                      const TensorParallel& tensor) {
  tables.resize(static_cast<size_t>(tensor.mine));
  for (size_t i = 0; i < tables.size(); ++i)
    visit(tables[i], vocab_spec(name + ".tokens", config, tensor.shard(static_cast<int64_t>(i))));
}

void EmbeddingWeights::declare_positions(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                                         const TensorParallel& tensor) {
  if (config.family == Family::gpt2 && tensor.first == 0)
    visit(positions, {.name = name + ".positions", .shape = {config.context, config.width}, .init = Init::position});
}

void embedding_forward(Pass& pass, const EmbeddingWeights& weights, Tensor x) {
  const Frame frame(pass.temporaries);
  const TensorParallel& tensor = pass.tensor;
  const bool alone = tensor.ranks->size() == 1;
  // At most one shard has a nonzero row, so the sum over shards is exact in any dtype and order.
  const Tensor rows = tensor.row_parts() > 1 ? pass.temporaries.take(x.dtype(), {pass.size(), x.cols()}) : x;
  for (int64_t i = 0; i < tensor.mine; ++i)
    run(pass.stream, EmbeddingForward{.x = rows,
                                      .tokens = pass.batch.tokens,
                                      .table = weights.tables[static_cast<size_t>(i)],
                                      .positions = weights.positions ? pass.batch.positions : Tensor{},
                                      .position_table = weights.positions,
                                      .shard = tensor.count > 1,
                                      .first = (tensor.first + i) * pass.config.vocab,
                                      .join = i > 0});
  if (alone) return;
  const auto flat = [](const Tensor& t) { return t.view({t.size()}); };
  if (tensor.row_parts() == 1)
    run(*tensor.ranks, pass.stream, AllReduce{.x = x});
  else
    run(*tensor.ranks, pass.stream, ReduceScatter{.part = flat(x), .all = flat(rows)});
}

void embedding_backward(Pass& pass, EmbeddingWeights& gradients, Tensor dx) {
  const Frame frame(pass.temporaries);
  const TensorParallel& tensor = pass.tensor;
  const Tensor all = gather_rows(pass, dx);
  for (int64_t i = 0; i < tensor.mine; ++i) {
    const Tensor positions = i == 0 ? gradients.positions : Tensor{};
    run(pass.stream, EmbeddingBackward{.dtable = gradients.tables[static_cast<size_t>(i)],
                                       .dposition_table = positions,
                                       .dx = all,
                                       .tokens = pass.batch.tokens,
                                       .positions = positions ? pass.batch.positions : Tensor{},
                                       .shard = tensor.count > 1,
                                       .first = (tensor.first + i) * pass.config.vocab});
  }
}

}  // namespace trireme
