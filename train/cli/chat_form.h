// The chat template of a model: what its data was built with, or what a published model says.
#pragma once

#include <string>

#include "train/cli/weight_source.h"

namespace trireme {

// The name of one of ChatTemplate's forms: that of the run's shards, or the one that the published model's own template resembles.
// ConfigError, with the names to choose from, when neither has one.
std::string find_chat_form(const WeightSource& source);

}  // namespace trireme
