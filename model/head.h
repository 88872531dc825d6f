// The head: residual stream to loss by the final norm, classifier and cross entropy. The batch
// passes in chunks of rows, so N x V logits never exist; the backward of a chunk follows its
// forward while its logits exist. Gradients replace logits of the step's dtype; if a bf16 step has
// f32 logits, bf16 gradients get memory of their own. Each shard has a part of the vocabulary:
// logits are never gathered.
#pragma once

#include "model/norm.h"

namespace trireme {

struct HeadWeights {
  NormWeights norm;
  std::vector<Tensor> classifiers;  // of each of this rank's shards, [V, C]; tied: the embedding's tables, declared there
  void declare(const WeightVisitor& visit, const std::string& name, const ModelConfig& config, const TensorParallel& tensor);
};

// Destination of losses: total [1] f32 += scale * factor * (sum of the batch's losses).
struct LossSum {
  Tensor total{};  // [1] f32; absent: no sum, as in an evaluation that needs each loss
  float scale = 1;
  Tensor factor{};                                   // [1] f32: 1 / (valid targets of the global batch); absent: 1
  bool z_loss = true;                                // include the model's z-loss, if it has one; false in an evaluation
  std::function<void(const Tensor& losses)> each{};  // called with the losses [N] f32 of the batch's tokens while they exist
};

// Computes logits [n, V], f32 or of the step's dtype, of the normalised rows x [n, C] for the
// rank's shard number `shard`.
void head_logits(Pass& pass, const HeadWeights& weights, int64_t shard, Tensor x, Tensor logits);
// Computes the loss of the normalised rows x [own, C].
void head_loss(Pass& pass, const HeadWeights& weights, Tensor x, const LossSum& loss);
// Computes the loss, dx [own, C] and the classifier's gradient, all times loss.scale and loss.factor.
void head_loss_backward(Pass& pass, const Trained<HeadWeights>& head, Tensor x, Tensor dx, const LossSum& loss);

}  // namespace trireme
