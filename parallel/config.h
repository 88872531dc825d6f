// The `parallel:` section of a config: how ranks form the mesh.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/key.h"

namespace trireme {

// Order of work of the stages of a pipeline: see schedule.h.
enum class Schedule { gpipe, one_f_one_b, interleaved, zero_bubble, zero_bubble_v };

template <>
struct Names<Schedule> {
  static constexpr std::array<std::string_view, 5> words{"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v"};
};

// Order of sums: the fastest for the mesh, or the same on every mesh.
enum class Numerics { fast, invariant };

template <>
struct Names<Numerics> {
  static constexpr std::array<std::string_view, 2> words{"fast", "invariant"};
};

// Dtype of gradients sent between replicas.
enum class ReduceDtype { f32, bf16 };

template <>
struct Names<ReduceDtype> {
  static constexpr std::array<std::string_view, 2> words{"f32", "bf16"};
};

// With ZeRO 2 and 3: when gradients are summed over replicas.
enum class ReduceWhen { microbatch, step };

template <>
struct Names<ReduceWhen> {
  static constexpr std::array<std::string_view, 2> words{"microbatch", "step"};
};

// How copies of the state send gradients to each other: exactly, in fewer bits, or as products of two
// narrow matrices. What is left out is added to what is sent next.
enum class Compress { none, bf16, int8, powersgd };

template <>
struct Names<Compress> {
  static constexpr std::array<std::string_view, 4> words{"none", "bf16", "int8", "powersgd"};
};

// Moments of the gradients when copies that make local steps meet: each keeps its own, or all take the means.
enum class LocalMoments { own, mean };

template <>
struct Names<LocalMoments> {
  static constexpr std::array<std::string_view, 2> words{"own", "mean"};
};

struct ParallelConfig {
  int64_t dp = 0, pp = 1, cp = 1, tp = 1, ep = 1, zero = 1, shard = 0;
  Schedule schedule = Schedule::one_f_one_b;
  int64_t chunks = 0, deferred = 0;
  std::vector<double> layers{};
  bool sequence = true, tp_overlap = false;
  Numerics numerics = Numerics::fast;
  int64_t max_tp = 0;
  ReduceDtype reduce = ReduceDtype::f32;
  ReduceWhen reduce_when = ReduceWhen::microbatch;
  Compress compress = Compress::none;
  int64_t compress_rank = 32, local_steps = 1, apart_after = 0;
  LocalMoments local_moments = LocalMoments::own;
  double local_lr = 1, outer_lr = 0.7, outer_momentum = 0.9;
  double unit_size = 0;
  bool two_level = false, shared_memory = true;
  int64_t node_ranks = 0;
  double timeout = 600;

  void visit(auto& keys) {
    keys("dp", dp, "replicas, each with its own part of the batch; 0: ranks / (pp cp tp)", between(0, 1e6));
    keys("pp", pp, "pipeline stages", between(1, 1e6));
    keys("cp", cp, "context parallelism; not supported yet, must be 1", between(1, 1e6));
    keys("tp", tp, "shards of each tensor", between(1, 1e6));
    keys("ep", ep, "expert parallelism; not supported yet, must be 1", between(1, 1e6));
    keys("zero", zero, "state divided among replicas: 0 none, 1 the optimizer's, 2 also gradients, 3 also weights", between(0, 3));
    keys("shard", shard, "replicas that divide one copy of the state by zero; other replicas hold copies of it; 0: all replicas",
         between(0, 1e6));
    keys("schedule", schedule, "order of work in the pipeline; zero_bubble and zero_bubble_v split backward into two halves");
    keys("chunks", chunks, "interleaved: pieces of the model on each stage; 0: 2", between(0, 1e6));
    keys(
        "deferred", deferred,
        "zero_bubble: microbatches whose weights' gradients may wait on a stage, at most: fewer take less memory and idle more; 0: "
        "pp - 1",
        between(0, 1e6));
    keys("layers", layers,
         "layers of each piece of the pipeline, in the model's order, such as 8.5; the first and the last may have 0; []: so that "
         "the slowest stage is fast",
         at_least(0));
    keys("tp_overlap", tp_overlap, "with tp: exchange rows of the residual stream beside the products that need them");
    keys("sequence", sequence, "with tp: divide the rows of the residual stream among the ranks between split products");
    keys("numerics", numerics, "invariant: the same bits on every mesh, at the cost of memory and smaller products");
    keys("max_tp", max_tp, "invariant: the largest tp with the same bits; 0: tp", between(0, 1e6));
    keys("reduce", reduce, "dtype of gradients sent between replicas; sums are f32");
    keys("reduce_when", reduce_when, "ZeRO 2 and 3: sum gradients after each microbatch, or once a step, which holds them whole");
    keys("unit_size", unit_size, "ZeRO 2 and 3: MB of weights that are gathered or summed at once, at least; 0: a half-layer",
         between(0, 1e6));
    keys("compress", compress,
         "gradients between copies of the state (see shard) in fewer bits; what is left out is added to the next; powersgd: "
         "products of two narrow matrices",
         identity());
    keys("compress_rank", compress_rank, "powersgd: columns of the narrow matrices", between(1, 64).identity());
    keys("local_steps", local_steps, "steps that each copy of the state makes alone before all meet in an outer step; 1: none",
         between(1, 1e6).identity());
    keys("local_lr", local_lr, "local_steps: factor of train.lr in steps that copies make alone", above(0).identity());
    keys("local_moments", local_moments,
         "local_steps: moments of the gradients when copies meet: each keeps its own, or all take the means", identity());
    keys("outer_lr", outer_lr, "local_steps: learning rate of the outer step", above(0).identity());
    keys("outer_momentum", outer_momentum, "local_steps: Nesterov momentum of the outer step", between(0, 1).identity());
    keys("apart_after", apart_after, "compress, local_steps: steps before these begin, in which all sums are exact",
         between(0, 1e12).identity());
    keys("two_level", two_level,
         "on CPUs: sum within each node first, then between nodes: less traffic between nodes, more within");
    keys("shared_memory", shared_memory,
         "on CPUs: replicas on one machine sum whole gradients where these are, in each other's memory; false: by messages");
    keys("node_ranks", node_ranks, "two_level: ranks of a node; 0: as launched, in a plan 8", between(0, 1e6));
    keys("timeout", timeout, "abort after a rank has waited this many seconds for its GPU; 0: never", between(0, 1e9));
  }

  int64_t stage_chunks() const {  // pieces of the model on each stage
    if (pp == 1) return 1;
    if (turns()) return 2;
    if (schedule != Schedule::interleaved) return 1;
    return chunks > 0 ? chunks : 2;
  }
  bool turns() const { return pp > 1 && schedule == Schedule::zero_bubble_v; }
  bool backward_in_halves() const { return pp > 1 && (schedule == Schedule::zero_bubble || schedule == Schedule::zero_bubble_v); }
  Schedule stage_schedule() const { return pp == 1 ? Schedule::one_f_one_b : schedule; }
  bool exact() const { return numerics == Numerics::invariant; }
  bool local() const { return local_steps > 1; }
  bool compresses() const { return compress != Compress::none; }
  // Steps are counted from 1. An outer step follows those at the end of a round.
  bool apart_at(int64_t step) const { return (local() || compresses()) && step > apart_after; }
  bool meets_after(int64_t step) const { return local() && apart_at(step) && step % local_steps == 0; }
  int64_t shards() const { return exact() && max_tp > 0 ? max_tp : tp; }  // parts that sums over tensors are made of

  // Reports values that this version does not support, as (key, message).
  void check(auto&& report) const {
    if (cp > 1)
      report("cp", "context parallelism is not supported yet: must be 1; to split rows, set parallel.tp and parallel.sequence");
    if (ep > 1) report("ep", "experts are not supported yet: must be 1");
    if (chunks > 1 && schedule != Schedule::interleaved) report("chunks", "needs parallel.schedule = interleaved");
    if (deferred > 0 && schedule != Schedule::zero_bubble) report("deferred", "needs parallel.schedule = zero_bubble");
    if (shard > 1 && zero == 0) report("shard", "needs parallel.zero of 1, 2 or 3: with 0 each replica has a copy of its own");
    if (shard > 1 && two_level)
      report("shard", "sums within its replicas first, and then between them: set parallel.two_level to false");
    check_copies(report);
    if (node_ranks > 1 && !two_level) report("node_ranks", "needs parallel.two_level = true");
    if (!exact()) return;
    if (reduce != ReduceDtype::f32) report("reduce", "must be f32 with parallel.numerics = invariant");
    if (reduce_when != ReduceWhen::microbatch)
      report("reduce_when",
             "must be microbatch with parallel.numerics = invariant, which sums each microbatch's gradients in order");
    if (two_level) report("two_level", "must be false with parallel.numerics = invariant, which fixes the order of sums");
    if (shards() % tp != 0) report("max_tp", "must be a multiple of parallel.tp = " + std::to_string(tp));
    if ((shards() & (shards() - 1)) != 0) report(max_tp > 0 ? "max_tp" : "tp", "must be a power of two with invariant numerics");
  }

 private:
  void check_copies(auto&& report) const {
    for (const auto& [key, set] : {std::pair("compress", compresses()), std::pair("local_steps", local())}) {
      if (!set) continue;
      if (zero > 0 && shard == 0)
        report(key, "needs copies of the state: set parallel.shard to the replicas that divide one, or parallel.zero to 0");
      if (exact()) report(key, "is not possible with parallel.numerics = invariant, which sums all gradients exactly");
      if (two_level) report(key, "needs parallel.two_level = false");
    }
    if (compresses() && reduce != ReduceDtype::f32)
      report("compress", "needs parallel.reduce = f32: it replaces bf16 between copies");
    if (compress == Compress::powersgd && zero > 0 && shard > 1)
      report("compress", "powersgd needs whole matrices: set parallel.shard to 1, or parallel.zero to 0");
    if (local_moments != LocalMoments::own && !local()) report("local_moments", "needs parallel.local_steps");
    if (apart_after > 0 && !local() && !compresses()) report("apart_after", "needs parallel.compress or parallel.local_steps");
    if (apart_after % std::max<int64_t>(local_steps, 1) != 0)
      report("apart_after", "must be a multiple of parallel.local_steps = " + std::to_string(local_steps));
    if (outer_momentum >= 1) report("outer_momentum", "must be below 1");
  }
};

}  // namespace trireme
