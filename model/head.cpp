#include "model/head.h"

#include <algorithm>

#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/matmul.h"

namespace trireme {
namespace {

constexpr int64_t kChunkBytes = 128 << 20;

struct Chunk {
  int64_t begin, end;
  Tensor logits, lse, targets;  // [n, V] f32, [n] f32, [n] i32
};

// Computes each chunk's logits and losses, hands it to `then`, and adds the losses up.
void for_each_chunk(Pass& pass, const HeadWeights& weights, Tensor x, const LossSum& loss,
                    const std::function<void(const Chunk&)>& then) {
  const Frame frame(pass.temporaries);
  const int64_t n = pass.size(), vocab = pass.config.vocab, rows = head_chunk_rows(n, vocab);
  const float z_loss = static_cast<float>(pass.config.z_loss);
  Tensor losses = pass.temporaries.take(Dtype::f32, {n});
  Tensor lse = pass.temporaries.take(Dtype::f32, {n});
  Tensor logits = pass.temporaries.take(Dtype::f32, {rows, vocab});
  for (int64_t begin = 0; begin < n; begin += rows) {
    const int64_t end = std::min(n, begin + rows);
    const Chunk chunk{.begin = begin,
                      .end = end,
                      .logits = logits.slice(0, end - begin),
                      .lse = lse.slice(begin, end),
                      .targets = pass.batch.targets.slice(begin, end)};
    head_logits(pass, weights, x.slice(begin, end), chunk.logits);
    run(pass.stream, CrossEntropyForward{.loss = losses.slice(begin, end),
                                         .lse = chunk.lse,
                                         .logits = chunk.logits,
                                         .targets = chunk.targets,
                                         .z_loss = z_loss});
    then(chunk);
  }
  run(pass.stream, SumInto{.total = loss.total, .x = losses, .scale = loss.scale});
}

}  // namespace

int64_t head_chunk_rows(int64_t size, int64_t vocab) {
  const int64_t most = std::max<int64_t>(16, kChunkBytes / (4 * vocab));
  const int64_t chunks = (size + most - 1) / most;
  return (size + chunks - 1) / chunks;
}

void HeadWeights::declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config) {
  norm.declare(visit, name + ".norm", config);
  if (!config.tied) visit(classifier, {.name = name + ".classifier", .shape = {config.vocab, config.width}, .init = Init::normal});
}

void head_logits(Pass& pass, const HeadWeights& weights, Tensor x, Tensor logits) {
  run(pass.stream, Matmul{.c = logits, .a = x, .b = weights.classifier, .transpose_b = true});
}

void head_loss(Pass& pass, const HeadWeights& weights, Tensor x, const LossSum& loss) {
  for_each_chunk(pass, weights, x, loss, [](const Chunk&) {});
}

void head_loss_backward(Pass& pass, const HeadWeights& weights, HeadWeights& gradients, Tensor x, Tensor dx, const LossSum& loss) {
  const Frame frame(pass.temporaries);
  const int64_t vocab = pass.config.vocab;
  // The products read dlogits in the step's dtype; f32 ones stand where the logits were.
  Tensor narrow =
      pass.dtype == Dtype::f32 ? Tensor{} : pass.temporaries.take(pass.dtype, {head_chunk_rows(pass.size(), vocab), vocab});
  for_each_chunk(pass, weights, x, loss, [&](const Chunk& chunk) {
    const Tensor dlogits = narrow ? narrow.slice(0, chunk.end - chunk.begin) : chunk.logits;
    run(pass.stream, CrossEntropyBackward{.dlogits = dlogits,
                                          .logits = chunk.logits,
                                          .lse = chunk.lse,
                                          .targets = chunk.targets,
                                          .z_loss = static_cast<float>(pass.config.z_loss),
                                          .scale = loss.scale});
    run(pass.stream, Matmul{.c = gradients.classifier,
                            .a = dlogits,
                            .b = x.slice(chunk.begin, chunk.end),
                            .transpose_a = true,
                            .accumulate = true});
    run(pass.stream, Matmul{.c = dx.slice(chunk.begin, chunk.end), .a = dlogits, .b = weights.classifier});
  });
}

}  // namespace trireme
