// The `checkpoint:` section: when to save and what to keep.
#pragma once

#include "kernels/key.h"

namespace trireme {

struct CheckpointConfig {
  int64_t every = 100, keep = 3;

  void visit(auto& keys) {
    keys("every", every, "steps between checkpoints; 0 saves only at the end", at_least(0));
    keys("keep", keep, "newest valid checkpoints to keep", at_least(2));
  }
};

}  // namespace trireme
