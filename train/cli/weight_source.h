// WeightSource: the weights that a command works on, as its command line names them. A name is a run's, or the path of a run, of a
// checkpoint, of a config or of a published model's directory.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.h"

namespace trireme {

// The words of a command line that name weights.
struct WeightWords {
  std::string from;
  std::vector<std::string> set{};  // section.key=value, over the config that comes with the weights
  int64_t step = -1;               // selects a run's checkpoint; -1: the newest
};

constexpr const char* kWeightSources =
    "A run's name or directory, a checkpoint's directory, a config (its run, or train.init_from without one), or a published or "
    "exported model's directory";

struct WeightSource {
  RunConfig config;
  std::string checkpoint;  // its directory; "": the published weights of config.train.init_from

  // The directory that the weights are read from.
  const std::string& directory() const { return checkpoint.empty() ? config.train.init_from : checkpoint; }
};

// Finds the weights; reads configs and manifests, and no tensor. A published model's context is cut to 2048 tokens;
// --set model.context takes more. CheckpointError, which names what is there instead, when nothing usable is found; ConfigError for
// a config that cannot be.
WeightSource find_weights(const WeightWords& words);

}  // namespace trireme
