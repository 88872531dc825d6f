// Mesh: which place of which axis this rank takes.
#pragma once

#include "parallel/config.h"
#include "parallel/world.h"

namespace trireme {

// The axes' sizes; their product is the number of ranks. parallel.dp = 0 takes what the other axes leave.
class Mesh {
 public:
  // ConfigError when the axes do not multiply to the world's ranks.
  Mesh(const World& world, const ParallelConfig& config);

  int rank() const { return rank_; }
  int64_t dp() const { return dp_; }
  int64_t pp() const { return pp_; }
  int64_t cp() const { return cp_; }
  int64_t tp() const { return tp_; }
  // This rank computes replica replica() of replicas(): its part of each batch.
  int64_t replica() const { return rank_ / (pp_ * cp_ * tp_); }
  int64_t replicas() const { return dp_; }

 private:
  int rank_;
  int64_t dp_, pp_, cp_, tp_;
};

}  // namespace trireme
