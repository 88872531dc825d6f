// Hugging Face's config.json and generation_config.json of GPT-2, Llama, Mistral, Qwen2 and Qwen3
// (https://github.com/huggingface/transformers, src/transformers/models), and the tokenizer beside them.
#pragma once

#include <string>

#include "model/config.h"

namespace trireme {

// Ids at the begin and the end of a document, as JSON: an id, several, or null.
struct SpecialTokens {
  std::string begin = "null", end = "null";
};

// config.json and generation_config.json of a model with weights of type `dtype` ("float32", "bfloat16").
// A Mistral without a window equals a Llama; it is called Mistral if `like`, its former config.json, is.
std::string published_config(const ModelConfig& model, const SpecialTokens& tokens, const std::string& dtype,
                             const std::string& like = "");
std::string published_generation_config(const SpecialTokens& tokens);

// ConfigError unless the directory holds a model that can be read: it exists, has config.json, and has
// safetensors. Each message has the command that fetches or converts the model.
void require_published(const std::string& directory);

// The model that a config.json describes. DataError, with all reasons, if Trireme cannot compute it.
ModelConfig read_published_config(const std::string& path);
SpecialTokens read_special_tokens(const std::string& path);  // of a config.json
// The tokenizer in the same directory; "" without one. A tokenizer.model of SentencePiece counts before the tokenizer.json
// that was made of it, which cannot be read here; other files of that name count after it.
std::string published_tokenizer(const std::string& directory);
// A warning that names the tokens of the model which its tokenizer.model lacks, such as those added for chats; "": it has all, or
// is not read. Other files beside it add them.
std::string doubt_published_tokenizer(const std::string& directory);

}  // namespace trireme
