#include "train/hub/published_layout.h"

#include <string>

#include "base/error.h"

namespace trireme {

PublishedLayout layout_of(const ModelConfig& model) {
  std::string reasons;
  const auto refuse = [&](const std::string& reason) { reasons += reason + "\n"; };
  PublishedLayout layout = PublishedLayout::gpt2;
  if (model.family == Family::gpt2) {
    if (model.q_width() != model.width) refuse("model.head_size: published GPT-2s have model.width / model.heads");
    if (model.window > 0) refuse("model.window: published GPT-2s have none");
  } else {
    layout = model.qk_norm      ? PublishedLayout::qwen3
             : model.qkv_bias   ? PublishedLayout::qwen2
             : model.window > 0 ? PublishedLayout::mistral
                                : PublishedLayout::llama;
    if (model.qk_norm && model.qkv_bias) refuse("model.qkv_bias: no published layout has it beside model.qk_norm");
  }
  if (!reasons.empty()) throw ConfigError(reasons + "the model cannot be written in a published layout");
  return layout;
}

}  // namespace trireme
