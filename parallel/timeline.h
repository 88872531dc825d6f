// Timeline: when each stage of a pipeline does what, if messages take no time. The pictures in docs/schedules are drawn from it.
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace trireme {

// How long an action of a whole stage takes, in any unit. A chunk's takes 1 / chunks of it.
struct ActionTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

struct TimedAction {
  Action action;
  double begin, end;
};

// When each action of each stage runs if messages take no time. Error when the stages wait for each other forever.
struct Timeline {
  std::vector<std::vector<TimedAction>> stages;
  double end = 0;
  double busy = 0;  // of one stage; all do the same work
  // Idle share of a stage's time, relative to the busy time: what the papers call the bubble.
  double bubble() const { return end / busy - 1; }
};
Timeline simulate(const std::vector<std::vector<Action>>& stages, const PipelineShape& shape, const ActionTimes& times);

// The bubble in theory, of the schedules' papers; of interleaved with whole groups.
double bubble_formula(Schedule schedule, const PipelineShape& shape, const ActionTimes& times);

// The timeline as an SVG picture.
std::string timeline_svg(const Timeline& timeline, const std::string& title);

}  // namespace trireme
