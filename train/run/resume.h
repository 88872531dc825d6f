// Resuming a run: its state, and whether the checkpoint belongs to this run or to another one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoints.h"
#include "parallel/journal.h"
#include "train/config/config.h"
#include "train/run/step_statistics.h"

namespace trireme {

struct ResumeChoice {
  std::string from =
      "auto";  // auto: the run's newest valid checkpoint, if any; never: refuse to find one; else a directory to start from
  bool allow_changes = false;  // continue although keys differ that change what is computed
};

// Compares the config with the one saved in a checkpoint. Returns a line for every key that differs. ConfigError, naming them all,
// when keys differ that are a run's identity (see Limit::identity), unless `allow` is given.
std::vector<std::string> compare_for_resume(const RunConfig& config, const std::string& saved, bool allow);

// Lists what each rank of a run on so many ranks saves, by the config in its checkpoint.
Layout saved_layout(const std::string& config, int64_t ranks);

// Fresh weights, or those that train.init_from says. `moved` is called when some of a file was read. All ranks call it.
void initialise(
    const RunConfig& config, TrainState& run, const std::function<void()>& moved = [] {});

// Weights, moments and history from the checkpoint that `resume` says, or fresh ones. Returns the finished steps. All ranks call
// it.
int64_t restore(TrainState& run, Checkpoints& checkpoints, const ResumeChoice& resume, StepStatistics& history, Journal& journal);

}  // namespace trireme
