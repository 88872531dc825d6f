// The `parallel:` section: how the ranks form the mesh.
#pragma once

#include "kernels/key.h"

namespace trireme {

struct ParallelConfig {
  int64_t dp = 0, pp = 1, cp = 1, tp = 1;

  void visit(auto& keys) {
    keys("dp", dp, "replicas, each with its own part of the batch; 0 takes ranks / (pp cp tp)", between(0, 1e6));
    keys("pp", pp, "pipeline stages", between(1, 1e6));
    keys("cp", cp, "parts of the context", between(1, 1e6));
    keys("tp", tp, "parts of each tensor", between(1, 1e6));
  }

  // What this version cannot do yet, as (key, message) for each problem.
  void check(auto&& report) const {
    const auto one = [&](const char* key, int64_t parts) {
      if (parts > 1) report(key, "this version runs one rank: must be 1");
    };
    one("dp", dp);
    one("pp", pp);
    one("cp", cp);
    one("tp", tp);
  }
};

}  // namespace trireme
