// UnitTraffic: what moves between ranks for each unit of a Stage. Weights arrive before a pass reads them; gradients leave when
// backward has done with them; the copy of the embedding's table that a tied head reads on another stage goes to and fro.
#pragma once

#include "model/stage.h"
#include "parallel/buckets.h"
#include "parallel/mesh.h"

namespace trireme {

class UnitTraffic {
 public:
  // All outlive it. The Stage holds what `zero` (parallel.zero) leaves to a replica.
  UnitTraffic(const Mesh& mesh, Device& device, const Stage& stage, Buckets& buckets);

  // What a Stage's hooks tell. Backward's gradients are done with microbatch number `microbatch` of this replica.
  void read(size_t unit);
  void write(size_t unit);
  void done(size_t unit, int64_t microbatch);
  // Whether done() is to be told of every microbatch, not only of a replica's last, with which the gradients are complete.
  bool reduces_each() const { return !stage_.shape().holding.gradients; }
  // The gradients' parts are whole, summed over `microbatches` of each replica.
  void finish(int64_t microbatches);
  // The parts of the weights have changed: to all who hold or read them.
  void spread();

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Memory {            // shared by units: see Unit
    size_t weights = kNone;  // the unit whose weights are there
    Event arrived, cleared;  // its weights; the gradients are zero again
  };

  void fetch(size_t unit);
  Memory& memory(size_t unit) { return memories_[stage_.units()[unit].memory]; }
  size_t find(UnitKind kind) const;

  const Mesh& mesh_;
  Device& device_;
  const Stage& stage_;
  Buckets& buckets_;
  std::vector<Event> arrived_;  // by unit, where weights are held for good
  std::array<Memory, 8> memories_;
  size_t last_read_ = 0;
};

}  // namespace trireme
