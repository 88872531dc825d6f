// ModelChunk: consecutive layers of the model, of which a pipeline stage holds one or more.
//
// The layers are cut into stages * chunks such chunks; number c stages + s is chunk c of stage s.
// The first begins with the embedding, the last ends with the head.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace trireme {

struct ModelChunk {
  int64_t begin, end;  // layers
  bool first, last;    // of the model's chunks
  int64_t layers() const { return end - begin; }
};

std::vector<int64_t> layers_of(const std::vector<ModelChunk>& chunks);  // of each

// Work of a model's parts, in that of a layer. Looking up the embedding is none.
struct ModelWork {
  int64_t layers = 1;
  double head = 0;  // the classifier after the last layer
};
// By FLOPs of forward and backward, with what `recompute` adds.
ModelWork work_of(const ModelConfig& config, Recompute recompute);

// Layers of each chunk, at least one, so that the slowest stage is as fast as possible, and then each
// stage's slowest chunk. What does not divide evenly goes to later ones, since earlier stages hold more
// activations. Needs layers >= stages * chunks.
std::vector<int64_t> deal_layers(const ModelWork& work, int64_t stages, int64_t chunks);

// Chunks of one stage, in its order. `layers` has those of each chunk of the model.
std::vector<ModelChunk> chunks_of_stage(const std::vector<int64_t>& layers, int64_t stages, int64_t stage);

}  // namespace trireme
