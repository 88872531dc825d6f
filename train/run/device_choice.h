// The device that kernels.device = auto stands for on this machine.
#pragma once

#include "train/config/config.h"

namespace trireme {

// Replaces `auto` by cuda if a GPU runs our kernels, else by cpu. ConfigError for keys that need a GPU where none does.
void choose_device(RunConfig& config);

}  // namespace trireme
