// The `parallel:` section: how the ranks form the mesh.
#pragma once

#include "kernels/key.h"

namespace trireme {

struct ParallelConfig {
  int64_t dp = 0, pp = 1, cp = 1, tp = 1;

  void visit(auto& keys) {
    keys("dp", dp, "replicas, each with its own part of the batch; 0 takes ranks / (pp cp tp)", at_least(0));
    keys("pp", pp, "pipeline stages", at_least(1));
    keys("cp", cp, "parts of the context", at_least(1));
    keys("tp", tp, "parts of each tensor", at_least(1));
  }
};

}  // namespace trireme
