// Stage: this rank's slice of the model: weights, gradients and saved activations, taken once from the arenas.
//
// On Place::none the same code runs on memory that is only counted; that is how the plan knows the arenas' sizes.
#pragma once

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"

namespace trireme {

struct StageWeights {
  EmbeddingWeights embedding;
  std::vector<BlockWeights> blocks;
  HeadWeights head;

  // The units in which weights are declared, in the order of the forward pass, and whose gradients are done at one moment: the
  // embedding, each block, the head.
  static size_t units(const ModelConfig& config) { return static_cast<size_t>(config.layers) + 2; }
  void declare_unit(size_t unit, const WeightVisitor& visit, const ModelConfig& config);
};

// Told when forward is about to read the weights of a unit, and when backward has done with its gradients: the last one first.
using UnitNeeded = std::function<void(size_t unit)>;
using GradientsDone = std::function<void(size_t unit)>;

// A weight, what the listing says of it, and its gradient (absent in a Stage that only infers).
struct Parameter {
  WeightSpec spec;
  Tensor weight;    // in the step's dtype
  Tensor gradient;  // f32
  size_t unit;
  int64_t begin;  // its first element in its unit
};

// Takes each unit's weights from `arena` as one flat tensor, whose size is a multiple of `parts`; a weight begins at the same
// element whatever the dtype. Calls each(parameter), its gradient absent, in the order of the listing.
std::vector<Tensor> take_units(StageWeights& weights, const ModelConfig& config, Dtype dtype, int64_t parts, Arena& arena,
                               const std::function<void(const Parameter&)>& each);
// The same, listed. Gradients are left absent.
std::vector<Parameter> take_weights(StageWeights& weights, const ModelConfig& config, Dtype dtype, Arena& arena);
// The table of cosines and sines, [context, D/2, 2] f32, computed by `stream`; absent for gpt2.
Tensor take_rope(const ModelConfig& config, Arena& arena, Stream& stream);

// The shape of a pass: B rows of T tokens, and the dtype of its weights and activations.
struct PassShape {
  int64_t rows, context;
  Dtype dtype;
  int64_t parts = 1;  // of equal size that each unit's weights and gradients can be cut into
};

// The weights of a unit and their gradients, flat, of one size. Gaps between weights are zero.
struct Unit {
  Tensor weights;    // in the step's dtype
  Tensor gradients;  // f32
};

class Stage {
 public:
  // For training: weights, f32 gradients and activations of one microbatch.
  Stage(const ModelConfig& config, const PassShape& shape, Arenas& arenas, Stream& stream);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Unit>& units() const { return units_; }
  const ModelConfig& config() const { return config_; }
  const PassShape& shape() const { return shape_; }
  const StageWeights& weights() const { return weights_; }
  Tensor rope() const { return rope_; }

  // Keeps in the saved activations what backward needs. The batch has the Stage's shape.
  void forward(Stream& stream, const Microbatch& batch, const UnitNeeded& needed = {});
  // The loss of the last forward's batch, added to `loss`; the gradients, scaled alike, added to gradients().
  void backward(Stream& stream, const Microbatch& batch, const LossSum& loss, const GradientsDone& done = {});
  // The loss of the last forward's batch, without gradients.
  void evaluate(Stream& stream, const Microbatch& batch, const LossSum& loss);
  // logits [N, V] f32 of the last forward's batch.
  void logits(Stream& stream, const Microbatch& batch, Tensor logits);

 private:
  Pass pass(Stream& stream, const Microbatch& batch);

  ModelConfig config_;
  PassShape shape_;
  Arena& temporaries_;
  StageWeights weights_, gradients_;
  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  Tensor rope_;  // [context, D/2, 2] f32, llama only
  std::vector<BlockSaved> saved_;
  NormSaved head_norm_;
};

}  // namespace trireme
