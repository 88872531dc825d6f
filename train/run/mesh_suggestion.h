// Suggestions of a mesh, if the one that was asked for is impossible or exceeds a rank's memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/step/plan.h"

namespace trireme {

// The plans of a mesh's stages, one rank of each: the first of its tp group and of the first replica.
std::vector<Plan> stage_plans(const RunConfig& config, int64_t ranks);
// Bytes of the rank that needs most.
int64_t most_bytes(const std::vector<Plan>& stages);

// Reasons why this config cannot run on so many ranks, one line each; "" if it can. `memory` in bytes
// of a rank; 0 disables that check.
std::string mesh_problems(const RunConfig& config, int64_t ranks, int64_t memory);

// Settings for --set with which the config runs on so many ranks: as few and small changes of dp, pp,
// tp, zero and microbatch as possible. nullopt if no settings do.
std::optional<std::string> nearest_mesh(const RunConfig& config, int64_t ranks, int64_t memory);

// A number of ranks and settings for --set, which may be empty.
struct FittingMesh {
  int64_t ranks;
  std::string settings;
  std::string with_settings() const { return settings.empty() ? "" : " with " + settings; }
};

// The smallest mesh of more than `ranks` ranks, a power of two, that fits into `memory` bytes a rank.
// Searches up to 64 times the ranks that weights and optimizer state need; nullopt if none fits.
std::optional<FittingMesh> fewest_ranks(const RunConfig& config, int64_t ranks, int64_t memory);

}  // namespace trireme
