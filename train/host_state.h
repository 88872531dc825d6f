// The state of a run in host memory, where checkpoints are written from and read into.
#pragma once

#include <vector>

#include "kernels/stream.h"
#include "parallel/split.h"

namespace trireme {

// Of Place::cpu the shards themselves; of a GPU copies, in memory of their own.
class HostState {
 public:
  HostState(Stream& stream, std::vector<NamedShard> shards);

  const std::vector<NamedShard>& shards() const { return host_; }
  void fetch();  // the copies hold what the stream's work so far has left
  void store();  // what the copies hold goes back

 private:
  Stream& stream_;
  std::vector<NamedShard> device_, host_;
  std::vector<std::byte> memory_;
};

}  // namespace trireme
