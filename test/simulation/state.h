// State: a rank's slices of a few tiny tensors, whose contents a step fixes for any number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoints.h"

namespace trireme::simulation {

class State {
 public:
  State(int64_t rank, int64_t ranks);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void fill(int64_t step);
  // "" if this is the state after `step`, otherwise the first difference.
  std::string differs_from(int64_t step) const;
  CheckpointState as_of(int64_t step) const;
  const std::vector<TensorSlice>& slices() const { return slices_; }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<TensorSlice> slices_;
};

// The system's calls, but for the container of a rank's file, whose bytes libhdf5 made once and
// which are written like others.
Io simulated_io();

}  // namespace trireme::simulation
