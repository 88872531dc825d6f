// Tiny models, and training them on a mesh within this process.
#pragma once

#include <string>
#include <vector>

#include "test/sanitized.h"
#include "train/step/step.h"

namespace trireme {

inline constexpr int64_t kTinyBatch = 8;
inline constexpr int64_t kTinySteps = kSanitized ? 5 : 8;  // all but the first touch the same memory

// "gpt2", "llama" or "llama, untied": their sizes divide by 8, except for the vocabulary. GPT-2,
// tied; Llama with grouped heads, QK-norm or biases. kTinySteps of 8 microbatches of one row.
RunConfig tiny(const std::string& model);

struct Trajectory {
  std::vector<float> losses, norms;
  std::vector<float> own_moments{};  // moments that this copy has of its own after the last step
};

// Trains on this mesh, on random tokens. Requires that the arenas use what the plan says, and that a
// step sends what it says.
Trajectory trajectory(const RunConfig& config, const Mesh& mesh);

}  // namespace trireme
