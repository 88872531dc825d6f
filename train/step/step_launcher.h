// StepLauncher: how a step is handed to its device. On a GPU the batch goes there and the results come back by way of pinned
// memory, the host is a step ahead, and a step that has been seen before is replayed as a graph. On the CPU all of it is a call.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>

#include "data/loader/loader.h"
#include "kernels/gate.h"
#include "kernels/graph.h"
#include "kernels/memory.h"
#include "kernels/staging_buffer.h"
#include "parallel/mesh.h"
#include "train/config/config.h"

namespace trireme {

class StepLauncher {
 public:
  // Takes memory of `device` for a replica's batch. What it is given outlives it.
  StepLauncher(const RunConfig& config, const Mesh& mesh, Device& device);

  // How many steps may be on their way when the next one's batch is there.
  int64_t ahead() const { return device_.place() == Place::cuda ? 1 : 0; }

  // The batch where the step is computed, at most the replica's. The host's is its own again when the step was handed over.
  Batch upload(const Batch& batch);
  // Does `step`, whose launches are the same each time for batches with so many valid targets.
  void launch(int64_t valid, const std::function<void()>& step);

  // What comes back of a step. Of two in a row, both may be on their way.
  struct Results {
    float loss = 0, squared_norm = 0;
    StepLimits limits{};  // by which it was computed
  };
  void send(int64_t step, const Tensor& loss, const Tensor& squared_norm, const StepLimits& limits);
  Results wait(int64_t step) const;

 private:
  struct Slot {
    std::optional<StagingBuffer> memory;
    StepLimits limits{};
  };
  static size_t slot_of(int64_t step) { return static_cast<size_t>(step % 2); }
  Graph* graph(int64_t valid);

  Device& device_;
  const bool graphs_wanted_;
  std::optional<Buffer> batch_;  // on a GPU: four tensors of a replica's ids
  std::array<std::optional<StagingBuffer>, 2> batches_;
  std::array<Slot, 2> results_;
  int64_t uploads_ = 0;
  std::map<int64_t, Graph> graphs_;  // by valid targets
  bool launched_ = false;
};

}  // namespace trireme
