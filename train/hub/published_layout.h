// The layouts in which models are published, by what a config.json calls them.
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

// ConfigError, with all reasons, when none has what the model has.
PublishedLayout layout_of(const ModelConfig& model);

}  // namespace trireme
