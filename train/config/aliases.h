// Names that other trainers give to keys of a config: nanoGPT, llm.c, Hugging Face's Trainer,
// Megatron-LM, torchtitan, axolotl and LLaMA-Factory.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct Alias {
  std::string name;  // lower case, words separated by '_'
  std::string key;   // ours, "train.lr"; "" if there is none
  std::string note;  // the reason or a remark; never empty without a key
};

// Every alias, each name once.
std::vector<Alias> all_aliases();

// The alias of this name; case, '-' and '_' do not matter.
std::optional<Alias> find_alias(const std::string& name);

// The alias with the smallest edit distance, for a misspelt name; nullopt if none is near.
std::optional<Alias> nearest_alias(const std::string& name);

}  // namespace trireme
