// Activations that a stage keeps from forward to backward: places for half-layers, which passes take and give back.
//
// A slot has memory for the stream that a pass receives. The rest of a pass's activations is in places that no slot owns, since
// chunks differ in size: whichever passes are under way at once, the places are as many as they need together.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "model/block.h"
#include "model/model_chunk.h"

namespace trireme {

// Number of slots and of each kind of place. With recomputation of whole layers, only streams are kept.
struct ActivationRoom {
  int64_t slots = 0;
  int64_t streams = 0;  // before half-layers that are not a pass's first
  int64_t attentions = 0, mlps = 0;

  bool has_room_for(const ActivationRoom& other) const;
};
// Room for all passes of this list that are under way at once. `chunks`: of the stage.
ActivationRoom room_for(const std::vector<Action>& actions, const std::vector<ModelChunk>& chunks, Recompute recompute);

class Activations {
 public:
  // Takes the memory of a stage with these chunks. `config` is one shard's.
  void take(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const BlockSaved::Shape& shape,
            const ActivationRoom& room, const std::vector<ModelChunk>& chunks);

  // A pass of this chunk takes places, the lowest that are free. What the slot still has is given back before.
  const std::vector<BlockSaved>& begin(int64_t slot, const ModelChunk& chunk);
  // The pass gives its places back. Its blocks stay known until the slot's next pass.
  void end(int64_t slot);

  const std::vector<BlockSaved>& blocks(int64_t slot) const { return slots_[static_cast<size_t>(slot)].blocks; }
  const Tensor& received(int64_t slot) const { return slots_[static_cast<size_t>(slot)].received; }

 private:
  template <class Memory>
  struct Places {
    std::vector<Memory> all{};
    std::set<size_t> free{};
    void add(Memory place) { free.insert(all.size()), all.push_back(std::move(place)); }
    const Memory& take(std::vector<size_t>& taken);
    void give_back(std::vector<size_t>& taken);
  };
  struct Slot {
    Tensor received;
    std::vector<BlockSaved> blocks{};
    std::vector<size_t> streams{}, attentions{}, mlps{};  // numbers of places
  };

  BlockSaved block(Slot& slot, const ModelChunk& chunk, int64_t layer);

  bool whole_ = false;  // recomputation of whole layers
  BlockSaved scratch_;
  std::vector<Slot> slots_;
  Places<Tensor> streams_;
  Places<BlockSaved> attentions_, mlps_;
};

}  // namespace trireme
