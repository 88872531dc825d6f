// First config for somebody's own text: a commented YAML file with sizes that suit its amount.
#pragma once

#include <cstdint>
#include <string>

#include "base/key.h"

namespace trireme {

enum class StarterSize { tiny, small, medium, large };
template <>
struct Names<StarterSize> {
  static constexpr std::array<std::string_view, 4> words{"tiny", "small", "medium", "large"};
};

// The size for this many bytes of text: below 2 MB, below 50 MB, below 1 GB, more.
StarterSize starter_size(int64_t text_bytes);

// "tiny", "small", "medium" or "large"; anything else is an internal error.
StarterSize parse_starter_size(const std::string& word);

// The last part of a path, as a run's name.
std::string run_name_of(const std::string& directory);

// The config's text. `directory` holds tokenizer.json and corpus/; its last part names the run.
std::string starter_yaml(const std::string& directory, StarterSize size, int64_t text_bytes);

}  // namespace trireme
