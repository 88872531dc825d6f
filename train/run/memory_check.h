// Checks before a run allocates anything: that its GPU takes the model, that it fits into memory, and can be saved.
#pragma once

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

// ConfigError if this machine has less memory than its ranks need, with settings that make it fit or
// the size that does. All ranks call it.
void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world);

// ConfigError if the run's checkpoints would be too large to be read again. All ranks call it.
void require_checkpoint(const Plan& plan, const Comm& all);

}  // namespace trireme
