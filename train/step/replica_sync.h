// ReplicaSync: what moves between the replicas of the model, unit by unit, while the step computes. Gradients leave as soon as
// backward has done with them, and are summed; updated weights come back before a pass reads them. With parallel.zero each replica
// sums and updates its own part of every unit alone (ZeRO: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion
// parameter models", 2020). The copy of the embedding's table that a tied head reads on another stage goes to and fro.
//
// Everything runs on the communication lane in the order of the calls, after what the compute lane was handed so far.
#pragma once

#include <memory>
#include <vector>

#include "model/stage.h"
#include "parallel/gpu_group.h"
#include "parallel/mesh.h"

namespace trireme {

class ReplicaSync {
 public:
  // All outlive it. The Stage holds what parallel.zero leaves to a replica. bf16_on_wire: gradients travel as bf16.
  ReplicaSync(const Mesh& mesh, Device& device, const Stage& stage, const Arenas& arenas, bool bf16_on_wire);

  // What a Stage's hooks tell: see UnitHooks.
  void read(size_t unit);
  void write(size_t unit);
  void done(size_t unit, int64_t microbatch);
  // Whether gradients leave after every microbatch, and not only after a replica's last, with which they are complete.
  bool reduces_each() const { return !stage_.shape().holding.gradients; }
  // The gradients' parts are whole, summed over `microbatches` of each replica.
  void finish(int64_t microbatches);
  // The parts of the weights have changed: to all who hold or read them.
  void spread();

  // Sums x over the replicas.
  void sum(Tensor x);
  // The replicas' values of x, or of their part of it, enter the tree's sums one by one, as those of microbatch number
  // `microbatch`; then x = 0. The event: it is.
  Event add_to_tree(Tensor x, Tensor tree, int64_t microbatch);
  // tree's first row = the sum of what has entered of `microbatches` of each replica.
  void total_of_tree(Tensor tree, int64_t microbatches);
  // Fills a flat tensor of which each replica has its own part. The event: it is whole.
  Event gather(Tensor flat, Tensor part);
  // What `compute` is handed from here on finds the results of all that was started.
  void join();

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Memory {            // shared by units: see Unit
    size_t weights = kNone;  // the unit whose weights are there
    Event arrived, cleared;  // its weights; the gradients are zero again
  };

  Stream& lane();
  void send(const Unit& unit);
  Event add(const Unit& unit);
  void fetch(size_t unit);
  Memory& memory(size_t unit) { return memories_[stage_.units()[unit].memory]; }
  size_t find(UnitKind kind) const;

  const Mesh& mesh_;
  const Comm& replicas_;
  Device& device_;
  const Stage& stage_;
  const bool divided_;  // each replica has a part of its own
  const bool bf16_on_wire_;
  std::vector<std::unique_ptr<KnownMemory>> known_;  // of the arenas, to a GPU's collectives
  std::vector<Event> arrived_;                       // by unit, where weights are held for good
  std::array<Memory, 8> memories_;
  size_t last_read_ = 0;
};

}  // namespace trireme
