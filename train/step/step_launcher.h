// StepLauncher: enqueues a step to its device. On a GPU, batch and results travel through pinned
// memory, the host is one step ahead, and a step that was recorded is replayed as a CUDA graph. On
// the CPU a step is a plain call.
#pragma once

#include <array>
#include <functional>
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
  // Allocates memory on `device` for a replica's batch. The arguments must outlive the launcher.
  StepLauncher(const RunConfig& config, const Mesh& mesh, Device& device);

  // Number of steps that may be in flight when the next step's batch is loaded.
  int64_t ahead() const { return device_.place() == Place::cuda ? 1 : 0; }

  // Copies a batch, at most the replica's, to the device. The caller may reuse its memory once the
  // step was enqueued.
  Batch upload(const Batch& batch);
  // Calls `step` or replays its graph. The launches of steps of the same kind (apart: see
  // parallel.apart_after) must be the same. Ranks record together, in the second of a kind: memory is
  // frozen then, so no rank's scratch memory moves later.
  void launch(bool apart, const std::function<void()>& step);

  // Numbers that a step returns to the host. Those of two consecutive steps may be in flight.
  struct Results {
    float loss = 0;
    SquaredSum squared_norm{};
    StepLimits limits{};  // that the step was computed with
  };
  void send(int64_t step, const Tensor& loss, const Tensor& squared_norm, const StepLimits& limits);
  Results wait(int64_t step) const;

 private:
  struct Slot {
    std::optional<StagingBuffer> memory;
    StepLimits limits{};
  };
  static size_t slot_of(int64_t step) { return static_cast<size_t>(step % 2); }

  Device& device_;
  std::optional<Buffer> batch_;  // only on a GPU: the batch's four tensors of i32
  std::array<std::optional<StagingBuffer>, 2> batches_;
  std::array<Slot, 2> results_;
  int64_t uploads_ = 0;
  std::optional<Graph> graph_;    // if wanted
  std::optional<bool> launched_;  // the last step's kind
};

}  // namespace trireme
