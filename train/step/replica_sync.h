// ReplicaSync: communication between the replicas of the model, unit by unit, while a step computes.
// It sums gradients as soon as backward has completed them, and gathers updated weights before a
// pass reads them. With parallel.zero, each replica sums and updates only its own part of every unit
// (ZeRO: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
// 2020). With parallel.shard, the parts are divided among so many neighbours, and then summed with the
// same parts of other copies (hybrid sharding: Zhao et al., "PyTorch FSDP: experiences on scaling fully
// sharded data parallel", 2023). A tied head on another stage reads a copy of the embedding's table: gradients of the copy
// are sent to the table, and updated weights back.
//
// Everything runs on the communication lane, in the order of the calls, after all work that was
// enqueued to the compute lane before.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/ops/gradient_norm.h"
#include "model/stage.h"
#include "parallel/gpu_group.h"
#include "parallel/mesh.h"
#include "parallel/shared_memory.h"
#include "train/step/copy_sum.h"

namespace trireme {

class ReplicaSync {
 public:
  // The arguments must outlive this. The Stage holds the parts that parallel.zero assigns to this
  // replica. With parallel.reduce = bf16 and several copies of a divided state, gradients travel as bf16
  // only between these. With parallel.local_steps, gradients stay within a copy.
  ReplicaSync(const ParallelConfig& config, const Mesh& mesh, Device& device, const Stage& stage, Arenas& arenas);

  // Groups that sum what lies in the arena of gradients: on a CPU, their ranks may do so in place.
  static std::vector<const Comm*> sharing_groups(const ParallelConfig& config, const Mesh& mesh);

  // Makes what follows part of step number `step`, counted from 1: see parallel.apart_after.
  void begin(int64_t step);

  // Callbacks for a Stage: see UnitHooks.
  void read(size_t unit);
  void ahead(size_t unit);
  void write(size_t unit);
  void done(size_t unit, const Microbatch& batch);
  // True if gradients are sent after every microbatch; otherwise only after a replica's last.
  bool reduces_each() const { return !stage_.shape().holding.gradients; }
  // Bytes of the lane's scratch memory on a GPU for sums that are then added to a part of the gradients; 0: in small pieces.
  int64_t sum_bytes() const;
  // Whether nothing changes a unit's part of the gradients after its sum over the owners.
  bool sums_once(size_t unit) const;
  // Makes the unit's sums also compute squares of ranges of its part. They must outlive this.
  void square(size_t unit, std::span<BlockSquares> ranges) { squares_[unit] = ranges; }
  // Completes this replica's parts of the gradients: sums over `microbatches` of each replica.
  void finish(int64_t microbatches);
  // Sends the updated parts of the weights to all ranks that hold or read them.
  void spread();

  // Sums what the units' parts of the gradients hold over the copies of the state; `exactly`: without
  // parallel.compress, but in the dtype of parallel.reduce.
  void sum_copies(bool exactly = false);
  // True if this step's gradients stay within a copy.
  bool local() const { return config_.local() && copy_sum_.apart(); }
  CopySum& copies() { return copy_sum_; }
  const CopySum& copies() const { return copy_sum_; }

  // Sums x over the replicas.
  void sum(Tensor x);
  // Adds each replica's x, or its part of x, to the tree as a value of microbatch number `microbatch`;
  // then clears x. The event: x is 0.
  Event add_to_tree(Tensor x, Tensor tree, int64_t microbatch);
  // tree's first row = sum of the values added for `microbatches` of each replica.
  void total_of_tree(Tensor tree, int64_t microbatches);
  // Gathers a flat tensor from the replicas' parts. The event: the tensor is complete.
  Event gather(Tensor flat, Tensor part);
  // Makes later work on the compute lane wait for all communication that was started.
  void join();

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Memory {            // shared by units: see Unit
    size_t weights = kNone;  // unit whose weights it holds
    Event arrived, cleared;  // these weights are complete; the gradients are zero again
  };

  Stream& lane();
  void send(size_t unit);
  Event add(size_t unit, bool last);
  void fetch(size_t unit);
  size_t source(size_t unit) const;
  Memory& memory(size_t unit) { return memories_[stage_.units()[unit].memory]; }
  size_t find(UnitKind kind) const;
  bool tied_apart() const;

  const ParallelConfig& config_;
  const Mesh& mesh_;
  const Comm &replicas_, &owners_;
  Device& device_;
  const Stage& stage_;
  const bool divided_;  // each replica owns a part of the state
  const bool bf16_to_owners_;
  CopySum copy_sum_;
  std::vector<std::unique_ptr<KnownMemory>> known_;    // arenas registered with a GPU's collectives
  std::vector<std::unique_ptr<SharedMemory>> shared_;  // gradients of ranks on this machine
  std::vector<Event> arrived_;                         // by unit, if weights are held permanently
  std::vector<std::span<BlockSquares>> squares_;       // by unit: ranges of its part of the gradients
  std::array<Memory, 8> memories_;
};

}  // namespace trireme
