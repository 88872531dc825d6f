// Conflicts of what copies of the state do apart (parallel.compress, parallel.local_steps) with keys of
// other sections.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/config.h"
#include "parallel/config.h"

namespace trireme {

// Calls report("train.steps", "must be ...") for each. `steps`, `eval_every`: of the section train.
void check_copies(const ParallelConfig& parallel, const ModelConfig& model, std::array<int64_t, 2> steps_and_eval_every,
                  auto&& report) {
  if (parallel.compress != Compress::none && model.kv_heads < parallel.tp)
    report("parallel.compress", "needs parallel.tp of at most model.kv_heads = " + std::to_string(model.kv_heads) +
                                    ": ranks that share a head would round it differently");
  if (!parallel.local()) return;
  const std::string rounds = "must be a multiple of parallel.local_steps = " + std::to_string(parallel.local_steps);
  const auto [steps, eval_every] = steps_and_eval_every;
  if (steps % parallel.local_steps != 0) report("train.steps", rounds + ": the copies differ between outer steps");
  if (eval_every % parallel.local_steps != 0) report("train.eval_every", rounds + ", or 0: the copies differ between outer steps");
}

}  // namespace trireme
