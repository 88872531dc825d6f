// ModelChunk: consecutive half-layers of the model, of which a pipeline stage holds one or more.
//
// Half-layer 2 k is the attention of layer k, 2 k + 1 its MLP. They are cut into as many such chunks as a
// pipeline has pieces: PipelineShape says which stage has which. The first begins with the embedding, the last ends
// with the head. These two may have no half-layer.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "parallel/schedule.h"

namespace trireme {

struct ModelChunk {
  int64_t begin, end;  // half-layers
  bool first, last;    // of the model's chunks
  int64_t half_layers() const { return end - begin; }
  int64_t first_layer() const { return begin / 2; }
  // Layers of which it has a half at least: its blocks.
  int64_t blocks() const { return begin == end ? 0 : (end + 1) / 2 - begin / 2; }
};

constexpr bool is_attention(int64_t half_layer) { return half_layer % 2 == 0; }

// Work of a model's parts, in that of a layer without recomputation. Looking up the embedding is none.
struct ModelWork {
  int64_t layers = 1;
  double head = 0;         // the classifier after the last layer
  double attention = 0.5;  // of a layer; the rest is its MLP
  // What recomputation adds to these, in the first stages.
  double attention_again = 0, mlp_again = 0;
  int64_t recomputing = 0;  // stages

  double of(int64_t half_layer, int64_t stage) const {
    const bool again = stage < recomputing;
    return is_attention(half_layer) ? attention + (again ? attention_again : 0) : 1 - attention + (again ? mlp_again : 0);
  }
};
// By FLOPs of forward and backward, with what `recompute` adds in the first `recomputing` stages.
ModelWork work_of(const ModelConfig& config, Recompute recompute = Recompute::none, int64_t recomputing = 0);

// Half-layers of each chunk, so that the slowest stage is fast: with one chunk a stage as fast as possible,
// with several at least as fast as with whole layers. What does not divide evenly goes to later stages, since
// earlier ones hold more activations. Needs 2 layers >= pieces.
std::vector<int64_t> deal_half_layers(const ModelWork& work, const PipelineShape& shape);

// Chunks of one stage, in its order. `half_layers` has those of each chunk of the model.
std::vector<ModelChunk> chunks_of_stage(const std::vector<int64_t>& half_layers, const PipelineShape& shape, int64_t stage);

}  // namespace trireme
