#include "model/activations.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

// Places that a pass of the chunk takes, besides its slot.
ActivationRoom places_of(const ModelChunk& chunk, Recompute recompute) {
  const bool whole = recompute == Recompute::full;
  const int64_t streams = whole ? chunk.blocks() : chunk.half_layers();
  ActivationRoom room{.streams = std::max<int64_t>(streams - 1, 0)};
  if (whole) return room;
  room.attentions = (chunk.end + 1) / 2 - (chunk.begin + 1) / 2;
  room.mlps = chunk.half_layers() - room.attentions;
  return room;
}

void add(ActivationRoom& sum, const ActivationRoom& more, int64_t times) {
  sum.streams += times * more.streams, sum.attentions += times * more.attentions, sum.mlps += times * more.mlps;
}

void widen(ActivationRoom& room, const ActivationRoom& other) {
  room.slots = std::max(room.slots, other.slots), room.streams = std::max(room.streams, other.streams);
  room.attentions = std::max(room.attentions, other.attentions), room.mlps = std::max(room.mlps, other.mlps);
}

}  // namespace

bool ActivationRoom::has_room_for(const ActivationRoom& other) const {
  return other.slots <= slots && other.streams <= streams && other.attentions <= attentions && other.mlps <= mlps;
}

ActivationRoom room_for(const std::vector<Action>& actions, const std::vector<ModelChunk>& chunks, Recompute recompute) {
  ActivationRoom most{.slots = slots_of(actions)}, now;
  for (const Action& a : actions) {
    const ActivationRoom places = places_of(chunks[static_cast<size_t>(a.chunk)], recompute);
    if (a.kind == ActionKind::forward) add(now, places, 1), widen(most, now);
    if (ends_pass(a.kind)) add(now, places, -1);
  }
  return most;
}

template <class Memory>
const Memory& Activations::Places<Memory>::take(std::vector<size_t>& taken) {
  require(!free.empty(), text("no room for the activations of another pass: all of ", all.size(), " places are taken"));
  taken.push_back(free.extract(free.begin()).value());
  return all[taken.back()];
}

template <class Memory>
void Activations::Places<Memory>::give_back(std::vector<size_t>& taken) {
  free.insert(taken.begin(), taken.end());
  taken.clear();
}

void Activations::take(Arena& arena, const ModelConfig& config, const TensorParallel& tensor, const BlockSaved::Shape& shape,
                       const ActivationRoom& room, const std::vector<ModelChunk>& chunks) {
  whole_ = shape.recompute == Recompute::full;
  scratch_.take_scratch(arena, config, tensor, shape);
  const auto stream = [&] { return arena.take(shape.residual, {shape.rows * shape.context / tensor.row_parts(), config.width}); };
  // A first piece without blocks passes the embedding's result on.
  const bool receives = std::ranges::any_of(chunks, [](const ModelChunk& c) { return c.blocks() > 0 || !c.first; });
  for (int64_t i = 0; i < room.slots; ++i) slots_.push_back({.received = receives ? stream() : Tensor{}});
  BlockSaved::Shape without = shape;
  without.keeps_stream = false;
  for (int64_t i = 0; i < room.streams; ++i) streams_.add(stream());
  for (int64_t i = 0; i < room.attentions; ++i) {
    BlockSaved place;
    place.take_attention(arena, config, tensor, without, scratch_);
    attentions_.add(std::move(place));
  }
  for (int64_t i = 0; i < room.mlps; ++i) {
    BlockSaved place;
    place.take_mlp(arena, config, tensor, without, scratch_);
    mlps_.add(std::move(place));
  }
}

const std::vector<BlockSaved>& Activations::begin(int64_t slot, const ModelChunk& chunk) {
  end(slot);
  Slot& mine = slots_[static_cast<size_t>(slot)];
  mine.blocks.clear();
  for (int64_t i = 0; i < chunk.blocks(); ++i) mine.blocks.push_back(block(mine, chunk, chunk.first_layer() + i));
  return mine.blocks;
}

// The halves of this layer that the chunk has.
BlockSaved Activations::block(Slot& slot, const ModelChunk& chunk, int64_t layer) {
  const bool attention = chunk.begin <= 2 * layer, mlp = 2 * layer + 1 < chunk.end;
  const auto stream = [&](bool first) { return first ? slot.received : streams_.take(slot.streams); };
  if (whole_) {
    BlockSaved block = scratch_;
    block.recompute = Recompute::full;
    block.attention_norm.sum = stream(layer == chunk.first_layer());
    if (!attention) block.mlp_norm.sum = block.attention_norm.sum;
    return block;
  }
  BlockSaved block = attention ? attentions_.take(slot.attentions) : BlockSaved{};
  if (attention) block.attention_norm.sum = stream(chunk.begin == 2 * layer);
  if (!mlp) return block;
  block.join_mlp(mlps_.take(slot.mlps));
  block.mlp_norm.sum = stream(chunk.begin == 2 * layer + 1);
  return block;
}

void Activations::end(int64_t slot) {
  Slot& mine = slots_[static_cast<size_t>(slot)];
  streams_.give_back(mine.streams), attentions_.give_back(mine.attentions), mlps_.give_back(mine.mlps);
}

}  // namespace trireme
