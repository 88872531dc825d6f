// The state of a run in host memory, where checkpoints are written from and read into.
#pragma once

#include <optional>
#include <vector>

#include "kernels/staging_buffer.h"
#include "parallel/split.h"
#include "train/step/step.h"

namespace trireme {

// Of each part of the state the one on this rank that is to be saved, or all that this rank holds.
enum class Shards { once, all };
std::vector<NamedShard> state_shards(const TrainState& run, Shards which);

enum class Copies { where_needed, always };  // where needed: of a GPU

// Shards of a device, or copies of them in memory of the host's own, which on a GPU is pinned.
class HostState {
 public:
  HostState(Device& device, std::vector<NamedShard> shards, Copies copies);

  const std::vector<NamedShard>& shards() const { return host_; }
  // The copies will hold what the compute lane's work so far leaves; on a GPU the host goes on, until wait().
  void fetch();
  void wait() const;  // from any thread
  void store();       // what the copies hold is on the device

 private:
  Device& device_;
  std::vector<NamedShard> device_shards_, host_;
  std::optional<StagingBuffer> memory_;  // of the copies
};

// Of memory that copies of `shards` take.
int64_t bytes_of(const std::vector<NamedShard>& shards);

// `x` where the host reads it, once all that was handed over is done: itself, or a copy in `memory`.
Tensor on_host(Device& device, const Tensor& x, std::vector<std::byte>& memory);

}  // namespace trireme
