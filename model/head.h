// From the residual stream to the loss: final norm, classifier, cross entropy. The batch passes in chunks of rows, so that N x V
// logits never exist; forward and backward of a chunk follow each other while its logits are there. Logits of the step's dtype give
// their place to their gradients; f32 ones of a bf16 step have bf16 gradients beside them. Each shard has its part of the
// vocabulary: logits are never gathered.
#pragma once

#include "model/norm.h"

namespace trireme {

struct HeadWeights {
  NormWeights norm;
  std::vector<Tensor> classifiers;  // [V, C] of each shard of this rank; tied: the embedding's tables, declared there
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const TensorParallel& tensor);
};

// Where losses end up: total [1] f32 += scale * (sum of the batch's losses).
struct LossSum {
  Tensor total{};                                    // [1] f32; absent: no sum is wanted, as in an evaluation that is told each
  float scale = 1;                                   // 1 / (valid targets of the global batch)
  bool z_loss = true;                                // the model's, if it has one, is a part of the loss; not of an evaluation's
  std::function<void(const Tensor& losses)> each{};  // told of the losses [N] f32 of the batch's tokens, while they are there
};

// logits [n, V], f32 or of the step's dtype, of the normalised rows x [n, C], of the rank's shard number `shard`.
void head_logits(Pass& pass, const HeadWeights& weights, int64_t shard, Tensor x, Tensor logits);
// The loss of the normalised rows x [own, C].
void head_loss(Pass& pass, const HeadWeights& weights, Tensor x, const LossSum& loss);
// The loss, dx [own, C], and the classifier's gradient; all scaled by loss.scale.
void head_loss_backward(Pass& pass, const Trained<HeadWeights>& head, Tensor x, Tensor dx, const LossSum& loss);

}  // namespace trireme
