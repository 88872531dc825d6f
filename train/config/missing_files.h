// Files that a config names and that do not exist.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.h"

namespace trireme {

struct MissingFile {
  std::string key;      // "data.train"
  std::string path;     // as the config names it, after expansion
  std::string problem;  // "no file matches this pattern"
};

// Shards, lists of excluded documents, questions and the tokenizer. Not train.init_from: a run with
// checkpoints does not need it.
std::vector<MissingFile> missing_files(const RunConfig& config);

}  // namespace trireme
