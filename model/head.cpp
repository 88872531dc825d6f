#include "model/head.h"

#include <algorithm>

#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/matmul.h"
#include "model/embedding.h"
#include "model/linear.h"
#include "model/shard_sum.h"
#include "parallel/collectives.h"

namespace trireme {
namespace {

constexpr int64_t kChunkBytes = 128 << 20, kLargeChunkBytes = 1 << 30;
constexpr int64_t kLeastRows = 16, kLeastLargeRows = 2048, kMostLargeRows = 8192;

struct Chunk {
  int64_t begin, end;
  Tensor logits;                // [mine n, V]: the shards' logits, one after the other
  Tensor losses, lse, targets;  // [n] f32, [n] f32, [n] i32
  Tensor logits_of(int64_t shard) const { return logits.slice(shard * (end - begin), (shard + 1) * (end - begin)); }
};

VocabRange range_of(const Pass& pass, int64_t shard) {
  const int64_t rows = pass.config.vocab, first = std::min((pass.tensor.first + shard) * rows, pass.vocab);
  return {.first = first, .valid = std::min(rows, pass.vocab - first)};
}

bool in_place(const Pass& pass) { return pass.logits == pass.dtype; }
// True if one op computes loss and gradients, since it has whole rows.
bool in_one(const Pass& pass) { return in_place(pass) && pass.tensor.count == 1; }

// Losses and lse of a chunk with computed logits.
void chunk_loss(Pass& pass, const Chunk& chunk, bool with_z_loss = true) {
  const TensorParallel& tensor = pass.tensor;
  const float z_loss = with_z_loss ? static_cast<float>(pass.config.z_loss) : 0;
  if (tensor.count == 1)
    return run(pass.stream, CrossEntropyForward{.loss = chunk.losses,
                                                .lse = chunk.lse,
                                                .logits = chunk.logits,
                                                .targets = chunk.targets,
                                                .z_loss = z_loss,
                                                .valid = pass.vocab});
  const Frame frame(pass.temporaries);
  const int64_t n = chunk.end - chunk.begin;
  const bool alone = tensor.ranks->size() == 1;
  const Tensor top = pass.temporaries.take(Dtype::f32, {n});
  const Tensor parts = pass.temporaries.take(Dtype::f32, {tensor.mine * 2, n});
  const Tensor sums = parts.slice(0, 2);
  for (int64_t i = 0; i < tensor.mine; ++i)
    run(pass.stream, ShardTop{.top = top, .logits = chunk.logits_of(i), .valid = range_of(pass, i).valid, .join = i > 0});
  if (!alone) run(*tensor.ranks, pass.stream, AllReduce{.x = top, .kind = AllReduce::Kind::max});
  for (int64_t i = 0; i < tensor.mine; ++i)
    run(pass.stream, ShardSums{.sums = parts.slice(2 * i, 2 * i + 2),
                               .logits = chunk.logits_of(i),
                               .top = top,
                               .targets = chunk.targets,
                               .first = range_of(pass, i).first,
                               .valid = range_of(pass, i).valid,
                               .classes = pass.vocab});
  if (tensor.mine > 1) run(pass.stream, SumParts{.y = sums, .parts = parts});
  if (!alone) run(*tensor.ranks, pass.stream, AllReduce{.x = sums});
  run(pass.stream,
      ShardLoss{.loss = chunk.losses, .lse = chunk.lse, .top = top, .sums = sums, .targets = chunk.targets, .z_loss = z_loss});
}

// Rows of a chunk: equal chunks with at most so many bytes of logits but at least so many rows; the last
// may be shorter.
int64_t chunk_rows(const Pass& pass) {
  const int64_t size = pass.size(), row = bytes_of(pass.logits) * pass.config.vocab * pass.tensor.count;
  const int64_t most = pass.config.large_chunks ? std::clamp(kLargeChunkBytes / row, kLeastLargeRows, kMostLargeRows)
                                                : std::max(kLeastRows, kChunkBytes / row);
  const int64_t chunks = (size + most - 1) / most;
  return (size + chunks - 1) / chunks;
}

// Computes each chunk's logits from the normalised rows x [N, C], calls `each` for its losses, and
// sums these.
void for_each_chunk(Pass& pass, const HeadWeights& weights, Tensor x, const LossSum& loss,
                    const std::function<void(const Chunk&)>& each) {
  const Frame frame(pass.temporaries);
  const int64_t n = pass.size(), mine = pass.tensor.mine, vocab = pass.config.vocab;
  const int64_t rows = chunk_rows(pass);
  Tensor losses = pass.temporaries.take(Dtype::f32, {n});
  Tensor lse = pass.temporaries.take(Dtype::f32, {n});
  Tensor logits = pass.temporaries.take(pass.logits, {mine * rows, vocab});
  for (int64_t begin = 0; begin < n; begin += rows) {
    const int64_t end = std::min(n, begin + rows);
    const Chunk chunk{.begin = begin,
                      .end = end,
                      .logits = logits.slice(0, mine * (end - begin)),
                      .losses = losses.slice(begin, end),
                      .lse = lse.slice(begin, end),
                      .targets = pass.batch.targets.slice(begin, end)};
    for (int64_t i = 0; i < mine; ++i) head_logits(pass, weights, i, x.slice(begin, end), chunk.logits_of(i));
    each(chunk);
  }
  if (loss.each) loss.each(losses);
  if (loss.total) run(pass.stream, SumInto{.total = loss.total, .x = losses, .scale = loss.scale, .factor = loss.factor});
}

// Losses of a chunk; with a whole vocabulary also the gradients, which replace the logits.
void chunk_loss_backward(Pass& pass, const Chunk& chunk, const LossSum& loss) {
  if (!in_one(pass)) return chunk_loss(pass, chunk);
  run(pass.stream, CrossEntropyInPlace{.loss = chunk.losses,
                                       .logits = chunk.logits,
                                       .targets = chunk.targets,
                                       .z_loss = static_cast<float>(pass.config.z_loss),
                                       .scale = loss.scale,
                                       .factor = loss.factor,
                                       .valid = pass.vocab});
}

// Gradients of a chunk's logits in the step's dtype, after chunk_loss_backward: in place of the
// logits, or in `narrow`.
Tensor dlogits_of(Pass& pass, const Chunk& chunk, int64_t shard, Tensor narrow, const LossSum& loss) {
  const Tensor logits = chunk.logits_of(shard), dlogits = narrow ? narrow.slice(0, logits.dim(0)) : logits;
  if (in_one(pass)) return dlogits;
  const VocabRange range = range_of(pass, shard);
  run(pass.stream, CrossEntropyBackward{.dlogits = dlogits,
                                        .logits = logits,
                                        .lse = chunk.lse,
                                        .targets = chunk.targets,
                                        .z_loss = static_cast<float>(pass.config.z_loss),
                                        .scale = loss.scale,
                                        .factor = loss.factor,
                                        .shard = pass.tensor.count > 1,
                                        .first = range.first,
                                        .valid = range.valid});
  return dlogits;
}

}  // namespace

void HeadWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config,
                          const TensorParallel& tensor) {
  norm.declare(visit, name + ".norm", config);
  classifiers.resize(static_cast<size_t>(tensor.mine));
  if (config.tied) return;
  for (size_t i = 0; i < classifiers.size(); ++i)
    visit(classifiers[i], vocab_spec(name + ".classifier", config, tensor.shard(static_cast<int64_t>(i))));
}

void head_logits(Pass& pass, const HeadWeights& weights, int64_t shard, Tensor x, Tensor logits) {
  multiply(pass, logits, x, weights.classifiers[static_cast<size_t>(shard)]);
}

void head_loss(Pass& pass, const HeadWeights& weights, Tensor x, const LossSum& loss) {
  const Frame frame(pass.temporaries);
  for_each_chunk(pass, weights, gather_rows(pass, x), loss, [&](const Chunk& chunk) { chunk_loss(pass, chunk, loss.z_loss); });
}

void head_loss_backward(Pass& pass, const Trained<HeadWeights>& head, Tensor x, Tensor dx, const LossSum& loss) {
  const Frame frame(pass.temporaries);
  const int64_t vocab = pass.config.vocab, rows = chunk_rows(pass);
  const Tensor narrow = in_place(pass) ? Tensor{} : pass.temporaries.take(pass.dtype, {rows, vocab});
  const Tensor all = gather_rows(pass, x);
  ShardSum sum(pass, dx);
  for_each_chunk(pass, head.weights, all, loss, [&](const Chunk& chunk) {
    chunk_loss_backward(pass, chunk, loss);
    for (int64_t i = 0; i < pass.tensor.mine; ++i) {
      const Tensor dlogits = dlogits_of(pass, chunk, i, narrow, loss);
      run(pass.stream, Matmul{.c = head.gradients.classifiers[static_cast<size_t>(i)],
                              .a = dlogits,
                              .b = all.slice(chunk.begin, chunk.end),
                              .transpose_a = true,
                              .accumulate = !pass.new_gradients || chunk.begin > 0});
      run(pass.stream,
          Matmul{
              .c = sum.part(i).slice(chunk.begin, chunk.end), .a = dlogits, .b = head.weights.classifiers[static_cast<size_t>(i)]});
    }
  });
  for (int64_t i = 0; i < pass.tensor.mine; ++i) sum.written(i, {.begin = 0, .end = pass.size()});
  sum.finish();
}

}  // namespace trireme
