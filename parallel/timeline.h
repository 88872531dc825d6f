// Timeline: when each stage of a pipeline computes what, if messages take no time. The pictures in
// docs/schedules are drawn from it.
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace trireme {

// Durations of the actions of a whole stage, in any unit. A chunk's take 1 / chunks of them.
struct ActionTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

struct TimedAction {
  Action action;
  double begin, end;
};

// Start and end of each action of each stage, if messages take no time. Error if the stages wait
// for each other forever.
struct Timeline {
  std::vector<std::vector<TimedAction>> stages;
  double end = 0;
  double busy = 0;  // of one stage; equal for all
  // Idle time of a stage relative to its busy time: the bubble in the literature.
  double bubble() const { return end / busy - 1; }
};
Timeline simulate(const std::vector<std::vector<Action>>& stages, const PipelineShape& shape, const ActionTimes& times);

// Theoretical bubble from the schedules' papers; for interleaved with complete groups. The zero-bubble schedules need
// as many microbatches as stages for it, zero_bubble_v twice as many.
double bubble_formula(Schedule schedule, const PipelineShape& shape, const ActionTimes& times);
// The same, or with fewer microbatches, or a limit to what waits, that of a simulation.
double bubble_of(Schedule schedule, const PipelineShape& shape, const ActionTimes& times);

// The timeline as an SVG picture.
std::string timeline_svg(const Timeline& timeline, const std::string& title);

}  // namespace trireme
