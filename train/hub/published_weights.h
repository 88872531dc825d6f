// The names and layouts of the tensors in published safetensors, of GPT-2, Llama, Mistral, Qwen2 and Qwen3
// (https://github.com/huggingface/transformers, src/transformers/models).
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace trireme {

// Where the elements of one of our tensors lie in a published one.
struct PublishedPlace {
  std::string name;
  bool transposed = false;  // [in, out], where ours is [out, in]
  int64_t first = 0;        // our rows are rows [first, first + ours) of it, columns if it is transposed
  int64_t all = 0;          // of so many
};

// One of our weights, of the whole model.
struct WholeWeight {
  std::string name;
  std::vector<int64_t> shape;
  PublishedPlace place;
};

// All of them, in the order of the forward pass; those of one published tensor follow one another. ConfigError, with all reasons,
// when no published layout has what the model has.
std::vector<WholeWeight> published_weights(const ModelConfig& model);
// The shape of the published tensor that holds `weight`.
std::vector<int64_t> published_shape(const WholeWeight& weight);

}  // namespace trireme
