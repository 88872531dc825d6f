// The `parallel:` section: how the ranks form the mesh.
#pragma once

#include "kernels/key.h"

namespace trireme {

// Which stage of a pipeline computes what when: see schedule.h.
enum class Schedule { gpipe, one_f_one_b, interleaved, zero_bubble };

template <>
struct Names<Schedule> {
  static constexpr std::array<std::string_view, 4> words{"gpipe", "1f1b", "interleaved", "zero_bubble"};
};

struct ParallelConfig {
  int64_t dp = 0, pp = 1, cp = 1, tp = 1, zero = 1;

  void visit(auto& keys) {
    keys("dp", dp, "replicas, each with its own part of the batch; 0 takes ranks / (pp cp tp)", between(0, 1e6));
    keys("pp", pp, "pipeline stages", between(1, 1e6));
    keys("cp", cp, "parts of the context", between(1, 1e6));
    keys("tp", tp, "parts of each tensor", between(1, 1e6));
    keys("zero", zero, "what replicas hold in parts: 0 nothing, 1 the optimizer's state", between(0, 3));
  }

  // What this version cannot do yet, as (key, message) for each problem.
  void check(auto&& report) const {
    const auto one = [&](const char* key, int64_t parts) {
      if (parts > 1) report(key, "this version has data parallelism only: must be 1");
    };
    one("pp", pp);
    one("cp", cp);
    one("tp", tp);
    if (zero > 1) report("zero", "this version shards the optimizer's state alone: must be 0 or 1");
  }
};

}  // namespace trireme
