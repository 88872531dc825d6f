// The mesh nearest to one that cannot be: for the ranks at hand, dividing what must be divided, within a rank's memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/step/plan.h"

namespace trireme {

// The plans of a mesh's stages, one rank of each: the first of its tp group and of the first replica.
std::vector<Plan> stage_plans(const RunConfig& config, int64_t ranks);
// The bytes of the rank that needs most.
int64_t most_bytes(const std::vector<Plan>& stages);

// What keeps this config from running on so many ranks: one line each; empty when nothing does. 0 bytes of memory: not asked.
std::string mesh_problems(const RunConfig& config, int64_t ranks, int64_t memory);

// The settings, as --set takes them, with which the config can run on so many ranks: with as few and as small changes of dp, pp,
// tp, zero and microbatch as possible. Nothing when there are none.
std::optional<std::string> nearest_mesh(const RunConfig& config, int64_t ranks, int64_t memory);

}  // namespace trireme
