// Hugging Face's config.json and generation_config.json of GPT-2, Llama, Mistral, Qwen2 and Qwen3
// (https://github.com/huggingface/transformers, src/transformers/models), and the tokenizer beside them.
#pragma once

#include <string>

#include "model/config.h"

namespace trireme {

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
