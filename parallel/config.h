// The `parallel:` section: how the ranks form the mesh.
#pragma once

#include <string>

#include "base/key.h"

namespace trireme {

// Which stage of a pipeline computes what when: see schedule.h.
enum class Schedule { gpipe, one_f_one_b, interleaved, zero_bubble };

template <>
struct Names<Schedule> {
  static constexpr std::array<std::string_view, 4> words{"gpipe", "1f1b", "interleaved", "zero_bubble"};
};

// Whether sums depend on the mesh.
enum class Numerics { fast, invariant };

template <>
struct Names<Numerics> {
  static constexpr std::array<std::string_view, 2> words{"fast", "invariant"};
};

// What gradients travel as between replicas.
enum class ReduceDtype { f32, bf16 };

template <>
struct Names<ReduceDtype> {
  static constexpr std::array<std::string_view, 2> words{"f32", "bf16"};
};

struct ParallelConfig {
  int64_t dp = 0, pp = 1, cp = 1, tp = 1, ep = 1, zero = 1;
  Schedule schedule = Schedule::one_f_one_b;
  int64_t chunks = 0;
  bool sequence = true;
  Numerics numerics = Numerics::fast;
  int64_t max_tp = 0;
  ReduceDtype reduce = ReduceDtype::f32;
  bool two_level = false;
  int64_t node_ranks = 0;
  double timeout = 600;

  void visit(auto& keys) {
    keys("dp", dp, "replicas, each with its own part of the batch; 0 takes ranks / (pp cp tp)", between(0, 1e6));
    keys("pp", pp, "pipeline stages", between(1, 1e6));
    keys("cp", cp, "parts of the context", between(1, 1e6));
    keys("tp", tp, "parts of each tensor", between(1, 1e6));
    keys("ep", ep, "parts of the experts, within dp", between(1, 1e6));
    keys("zero", zero, "what replicas hold in parts: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 weights too",
         between(0, 3));
    keys("schedule", schedule, "which pipeline stage computes what when; zero_bubble: backward in two halves");
    keys("chunks", chunks, "interleaved: pieces of the model that a stage holds; 0 takes 2", between(0, 1e6));
    keys("sequence", sequence, "with tp: each rank holds its own rows of the stream between the split products");
    keys("numerics", numerics, "invariant: the same bits on every mesh, at the price of more memory and smaller products");
    keys("max_tp", max_tp, "invariant: the largest tp that is to have the same bits; 0 takes tp", between(0, 1e6));
    keys("reduce", reduce, "what gradients travel as between replicas; they are summed in f32");
    keys("two_level", two_level, "replicas on one node sum first, then the nodes: less between nodes, more within");
    keys("node_ranks", node_ranks, "two_level: ranks of a node; 0 takes what the launcher has started there, a plan 8",
         between(0, 1e6));
    keys("timeout", timeout, "seconds that a rank waits for its GPU, which waits for other ranks, before the run ends; 0: forever",
         between(0, 1e9));
  }

  int64_t stage_chunks() const {  // pieces of the model on each stage
    if (schedule != Schedule::interleaved || pp == 1) return 1;
    return chunks > 0 ? chunks : 2;
  }
  Schedule stage_schedule() const { return pp == 1 ? Schedule::one_f_one_b : schedule; }
  bool exact() const { return numerics == Numerics::invariant; }
  int64_t shards() const { return exact() && max_tp > 0 ? max_tp : tp; }  // parts that sums over tensors are made of

  // What this version cannot do, as (key, message) for each problem.
  void check(auto&& report) const {
    if (cp > 1) report("cp", "context parallelism does not exist yet: must be 1; parallel.tp with parallel.sequence splits rows");
    if (ep > 1) report("ep", "there are no experts yet: must be 1");
    if (chunks > 1 && schedule != Schedule::interleaved) report("chunks", "belongs to parallel.schedule = interleaved");
    if (node_ranks > 1 && !two_level) report("node_ranks", "belongs to parallel.two_level = true");
    if (!exact()) return;
    if (reduce != ReduceDtype::f32) report("reduce", "must be f32 with parallel.numerics = invariant");
    if (two_level) report("two_level", "must be false with parallel.numerics = invariant, which sums in an order of its own");
    if (shards() % tp != 0) report("max_tp", "must be a multiple of parallel.tp = " + std::to_string(tp));
    if ((shards() & (shards() - 1)) != 0) report(max_tp > 0 ? "max_tp" : "tp", "must be a power of two with invariant numerics");
  }
};

}  // namespace trireme
