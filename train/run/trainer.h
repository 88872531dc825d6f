// The run: the table of contents of the program.
#pragma once

#include <functional>

#include "parallel/world.h"
#include "train/config/config.h"
#include "train/run/resume.h"

namespace trireme {

// Trains until config.train.steps, or until a signal asks to stop: ExitCode::done or ::stopped. Writes exit.json however it ends.
// `ready` is called on each rank before the first step: tests change there what steps do.
ExitCode train(const RunConfig& config, World& world, const ResumeChoice& resume,
               const std::function<void(TrainState&)>& ready = {});

}  // namespace trireme
