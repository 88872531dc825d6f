// Layouts of published models, with their names in config.json.
#pragma once

#include "model/config.h"

namespace trireme {

enum class PublishedLayout { gpt2, llama, mistral, qwen2, qwen3 };

struct LayoutNames {
  PublishedLayout layout;
  const char *type, *architecture;
};
inline constexpr LayoutNames kPublishedLayouts[] = {{PublishedLayout::gpt2, "gpt2", "GPT2LMHeadModel"},
                                                    {PublishedLayout::llama, "llama", "LlamaForCausalLM"},
                                                    {PublishedLayout::mistral, "mistral", "MistralForCausalLM"},
                                                    {PublishedLayout::qwen2, "qwen2", "Qwen2ForCausalLM"},
                                                    {PublishedLayout::qwen3, "qwen3", "Qwen3ForCausalLM"}};

// The layout that fits the model. ConfigError, with all reasons, if none does.
PublishedLayout layout_of(const ModelConfig& model);

}  // namespace trireme
