// Models as they are published: Hugging Face's config.json and the names and layouts of the tensors in its safetensors, of GPT-2,
// Llama, Mistral, Qwen2 and Qwen3 (https://github.com/huggingface/transformers, src/transformers/models).
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

// Of a document, as JSON: an id, several, or null.
struct SpecialTokens {
  std::string begin = "null", end = "null";
};

// config.json and generation_config.json of a model whose weights are of type `dtype` ("float32", "bfloat16"). A Mistral without a
// window is a Llama but in name: it has that name where `like`, the config.json of what it was, has it.
std::string published_config(const ModelConfig& model, const SpecialTokens& tokens, const std::string& dtype,
                             const std::string& like = "");
std::string published_generation_config(const SpecialTokens& tokens);

// The model that a config.json tells of. DataError, with all reasons, when it is none of these, or of a kind that is not computed
// here.
ModelConfig read_published_config(const std::string& path);
SpecialTokens read_special_tokens(const std::string& path);  // of a config.json
// That is published beside it: DIRECTORY/tokenizer.json or tokenizer.model; "" without one.
std::string published_tokenizer(const std::string& directory);

}  // namespace trireme
