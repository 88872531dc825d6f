// Evaluations of a run: validation loss and questions between its steps, with their progress.
#pragma once

#include "train/run/session.h"

namespace trireme {

enum class Evaluated { nothing, all, abandoned };

// Evaluates after `step` finished steps what the log does not have yet. All ranks together. Abandoned if a rank was asked to stop:
// the next start does the rest.
Evaluated evaluate_now(Session& session, int64_t step);

// The cost of an evaluation in steps, guessed: a sequence is a third of one that is trained on. 0: the run evaluates nothing.
double evaluation_in_steps(const RunConfig& config, const std::optional<Corpus>& validation,
                           const std::vector<ChoiceTask>& choices);

}  // namespace trireme
