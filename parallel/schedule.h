// Pipeline schedules as data: the order in which each stage computes microbatches. Pure functions:
// the step follows the list; timeline.h shows how long it takes.
//
// Stage s of p holds `chunks` of the p * chunks pieces into which the layers are cut. Its chunk c is
// piece c p + s; or with `turns`, where the pieces come back through the stages, its second is piece
// 2 p - 1 - s.
//   gpipe        all forwards, then all backwards. Huang et al., "GPipe", 2019
//   1f1b         after a warm-up, one forward and one backward in turn. Narayanan et al.,
//                "PipeDream-2BW", 2021
//   interleaved  1f1b over several chunks of each stage. Narayanan et al., "Efficient large-scale
//                language model training on GPU clusters using Megatron-LM", 2021
//   zero_bubble  1f1b with backward in two actions: the input's gradient, for which the previous
//                stage waits, and later the weights'. Takes no more memory than 1f1b's first
//                stage (ZB-H1). Qi et al., "Zero bubble pipeline parallelism", 2023
//   zero_bubble_v  the same with two chunks that turn, so that the first stage has the loss. If all actions
//                take as long, it idles half as long as ZB-H1, in the same memory (ZB-V). Qi et al., 2023, and "Pipeline
//                parallelism with controllable memory", 2024
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

// Whether a pass's activations are needed no more after an action of this kind.
constexpr bool ends_pass(ActionKind kind) { return kind == ActionKind::backward || kind == ActionKind::backward_weight; }

struct Action {
  ActionKind kind;
  int64_t microbatch;  // of the replica, from 0
  int64_t chunk;       // of the stage, from 0
  int64_t slot;        // number of the pass, from its forward to its last backward: the lowest free one
  int64_t turn = 0;    // 0 and 1 in turn: of the stage's forwards, and of the backwards that pass a gradient on. Chunks that
                       // turn have their own: 2 and 3 for the second
  int64_t again = 0;   // place for what backward computes again, from its first half to its second; the lowest free one
};

struct PipelineShape {
  int64_t stages = 1, microbatches = 1, chunks = 1;  // chunks > 1 only if interleaved, or 2 that turn
  bool turns = false;
  int64_t deferred = 0;  // zero_bubble: microbatches whose weights' gradients wait on a stage, at most; 0: any number

  int64_t pieces() const { return stages * chunks; }
  int64_t piece_of(int64_t stage, int64_t chunk) const {
    return turns && chunk == 1 ? 2 * stages - 1 - stage : chunk * stages + stage;
  }
  int64_t stage_of(int64_t piece) const { return turns && piece >= stages ? 2 * stages - 1 - piece : piece % stages; }
};

// The actions of stage `stage`, in order. Error if the schedule cannot run in this shape: see
// schedule_problem.
std::vector<Action> make_schedule(Schedule schedule, const PipelineShape& shape, int64_t stage);

// The same for forward passes alone, for an evaluation, on the first two of `slots` in turn, or one.
std::vector<Action> make_forward_schedule(const PipelineShape& shape, int64_t stage, int64_t slots);

// Why a schedule cannot run in this shape; "" if it can. Interleaved needs microbatches in groups
// of `stages`.
std::string schedule_problem(Schedule schedule, const PipelineShape& shape);

// The maximum number of slots in use at once.
int64_t slots_of(const std::vector<Action>& actions);
// The maximum number of passes between the halves of their backward at once.
int64_t agains_of(const std::vector<Action>& actions);

}  // namespace trireme
