// The state of a run in host memory, where checkpoints are written from and read into.
#pragma once

#include <optional>
#include <vector>

#include "kernels/staging_buffer.h"
#include "parallel/tensor_slice.h"
#include "train/step/step.h"

namespace trireme {

// Of each part of the state the one on this rank that is to be saved, or all that this rank holds.
enum class Ownership { saved, held };
std::vector<TensorSlice> state_slices(const TrainState& run, Ownership which);

enum class Copies { where_needed, always };  // where needed: of a GPU

// Slices on a device, or copies of them in memory of the host's own, which on a GPU is pinned.
class HostState {
 public:
  HostState(Device& device, std::vector<TensorSlice> slices, Copies copies);

  const std::vector<TensorSlice>& slices() const { return host_; }
  // The copies will hold what the compute lane's work so far leaves; on a GPU the host goes on, until wait().
  void fetch();
  void wait() const;  // from any thread
  void store();       // what the copies hold is on the device

 private:
  Device& device_;
  std::vector<TensorSlice> device_slices_, host_;
  std::optional<StagingBuffer> memory_;  // of the copies
};

// Of memory that copies of `slices` take.
int64_t bytes_of(const std::vector<TensorSlice>& slices);

// `x` where the host reads it, once all that was handed over is done: itself, or a copy in `memory`.
Tensor on_host(Device& device, const Tensor& x, std::vector<std::byte>& memory);

}  // namespace trireme
