// Pipeline schedules as data: which stage computes which microbatch when. Pure functions: the step follows the list; timeline.h
// says how long it takes.
//
// Stage s of p holds `chunks` pieces of the model: piece c is number c p + s of the p * chunks pieces the layers are cut into.
//   gpipe        all forwards, then all backwards. Huang et al., "GPipe", 2019
//   1f1b         after a warm-up, one forward and one backward in turn. Narayanan et al., "PipeDream-2BW", 2021
//   interleaved  1f1b over several chunks of each stage. Narayanan et al., "Efficient large-scale language model training on GPU
//                clusters using Megatron-LM", 2021
//   zero_bubble  1f1b whose backward is two actions: the input's gradient, which the stage before waits for, and later the
//                weights'. No more memory than 1f1b's first stage (ZB-H1). Qi et al., "Zero bubble pipeline parallelism", 2023
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/config.h"

namespace trireme {

enum class ActionKind { forward, backward, backward_input, backward_weight };
constexpr const char* name_of(ActionKind kind) {
  constexpr const char* names[] = {"forward", "backward", "backward_input", "backward_weight"};
  return names[static_cast<int>(kind)];
}

struct Action {
  ActionKind kind;
  int64_t microbatch;  // of the replica, from 0
  int64_t chunk;       // of the stage, from 0
  int64_t slot;        // where the chunk's activations lie from its forward to its last backward; lowest free one
};

struct PipelineShape {
  int64_t stages = 1, microbatches = 1, chunks = 1;  // chunks > 1 only if interleaved
};

// The actions of stage `stage`, in order. Error where the shape is not one of the schedule's: see schedule_problem.
std::vector<Action> make_schedule(Schedule schedule, const PipelineShape& shape, int64_t stage);

// The same for forward passes alone, on at most so many slots: an evaluation.
std::vector<Action> make_forward_schedule(const PipelineShape& shape, int64_t stage, int64_t slots);

// Why a schedule cannot run in this shape; "" when it can. Interleaved runs microbatches in groups of `stages`.
std::string schedule_problem(Schedule schedule, const PipelineShape& shape);

// The most activation slots in use at once: chunk-sized pieces.
int64_t slots_of(const std::vector<Action>& actions);

}  // namespace trireme
