// Whether a checkpoint continues this run, or quietly another one.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace trireme {

// Compares the config with the one saved in a checkpoint. Returns a line for every key that differs. ConfigError, naming them all,
// when keys differ that change which model or which data order is trained (model.*, data.train, data.tokenizer, train.batch,
// train.seed, train.rounding, kernels.dtype), unless `allow` is given.
std::vector<std::string> compare_for_resume(const RunConfig& config, const std::string& saved, bool allow);

}  // namespace trireme
