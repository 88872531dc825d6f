// Names and layouts of the tensors in published safetensors of GPT-2, Llama, Mistral, Qwen2 and Qwen3
// (https://github.com/huggingface/transformers, src/transformers/models).
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace trireme {

// Position of one of our tensors in a published one.
struct PublishedPlace {
  std::string name;
  bool transposed = false;  // published as [in, out]; ours is [out, in]
  int64_t first = 0;        // our rows are its rows [first, first + ours); its columns if it is transposed
  int64_t all = 0;          // rows (columns) of the published tensor
};

// A weight of the whole model, as Trireme names it.
struct WholeWeight {
  std::string name;
  std::vector<int64_t> shape;
  PublishedPlace place;
};

// All weights in the order of the forward pass; those of one published tensor are neighbours. ConfigError, with all reasons, if no
// published layout fits the model.
std::vector<WholeWeight> published_weights(const ModelConfig& model);
// The shape of the published tensor that holds `weight`.
std::vector<int64_t> published_shape(const WholeWeight& weight);

}  // namespace trireme
