// The run: the table of contents of the program.
#pragma once

#include <string>

#include "parallel/world.h"
#include "train/config.h"

namespace trireme {

struct ResumeChoice {
  std::string from =
      "auto";  // auto: the run's newest valid checkpoint, if any; never: refuse to find one; else a directory to start from
  bool allow_changes = false;  // continue although keys differ that change what is computed
};

// Trains until config.train.steps, or until a signal asks to stop: ExitCode::done or ::stopped. Writes exit.json however it ends.
ExitCode train(const RunConfig& config, World& world, const ResumeChoice& resume);

}  // namespace trireme
