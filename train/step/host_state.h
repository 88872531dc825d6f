// HostState: the state of a run in host memory, as checkpoints write and read it.
#pragma once

#include <optional>
#include <vector>

#include "kernels/staging_buffer.h"
#include "parallel/tensor_slice.h"
#include "train/step/step.h"

namespace trireme {

// Parts of the state: those that this rank saves, or all that it holds.
enum class Ownership { saved, held };
// Their place is the one where they lie: with train.offload, parts of a GPU's state are on the host.
std::vector<TensorSlice> state_slices(const TrainState& run, Ownership which);

enum class Copies { where_needed, always };  // where_needed: only for a GPU

// Slices of a device's memory, or copies of them in separate host memory, pinned for a GPU.
class HostState {
 public:
  HostState(Device& device, std::vector<TensorSlice> slices, Copies copies);

  const std::vector<TensorSlice>& slices() const { return host_; }
  // Copies the state as the compute lane's work so far leaves it. On a GPU the copies are valid after wait(), and the host
  // continues at once, but for what lies in its own memory (train.offload).
  void fetch();
  void wait() const;  // callable from any thread
  void store();       // copies back to the device and waits

 private:
  Device& device_;
  std::vector<TensorSlice> device_slices_, host_;
  std::optional<StagingBuffer> memory_;  // holds the copies
};

// Bytes of memory that copies of `slices` need.
int64_t bytes_of(const std::vector<TensorSlice>& slices);

// Waits for all enqueued work, then returns `x` in host memory: itself, or a copy in `memory`.
Tensor on_host(Device& device, const Tensor& x, std::vector<std::byte>& memory);

}  // namespace trireme
