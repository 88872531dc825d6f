// Checks before a run allocates anything: that its GPU takes the model, that it fits into memory, and can be saved.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/cuda_facts.h"
#include "train/run/placement.h"
#include "train/step/plan.h"

namespace trireme {

// Names what of the model a GPU's kernels do not take, with remedies; "" if nothing.
std::string shape_problems(const ModelConfig& model, const KernelLimits& limits, const std::string& gpu);
// ConfigError with these, if the device is a GPU.
void require_shapes(const RunConfig& config, const Device& device);

// Number of a node's ranks that share the GPU of rank `mine`, itself included, if these are the GPUs of all.
int64_t ranks_on_gpu(const std::vector<std::string>& gpus, size_t mine);

// Bytes that the ranks of one machine take together. Stages of a pipeline differ.
struct MachineNeed {
  int64_t arenas = 0, state = 0;          // of all arenas; of these: weights, gradients and the optimizer's
  int64_t pinned = 0;                     // of all arenas, by GPUs: in memory of the host
  int64_t copied = 0;                     // for copies of the state that is being saved or loaded
  int64_t kept = 0;                       // for checkpoint.memory_every, also of other machines
  std::map<int64_t, int64_t> of_stage{};  // number of the ranks of each stage
};
// A rank's part in words, and the sum of such parts; `kept` is counted apart.
std::string need_words(const Plan& plan);
MachineNeed sum_of_needs(const std::vector<std::string>& ranks);

// Names what takes the memory of a machine with GPUs, each with its keys and a remedy, if it has too few bytes; "" otherwise.
std::string host_problem(const RunConfig& config, const MachineNeed& need, int64_t bytes);

// ConfigError if this machine has less memory than its ranks need, with settings that make it fit or
// the size that does. All ranks call it.
void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world);

// ConfigError if the run's checkpoints would be too large to be read again. All ranks call it.
void require_checkpoint(const Plan& plan, const Comm& all);

}  // namespace trireme
