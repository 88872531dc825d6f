// Places for activations: as many as the passes under way need at once, and none of two passes.
#include "model/activations.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/memory.h"
#include "model/shards.h"
#include "test/catch.h"

using namespace trireme;

namespace {

const ModelConfig kConfig{.width = 8, .heads = 2, .kv_heads = 2, .head_size = 4, .ffn = 8, .vocab = 16, .context = 2};
constexpr BlockSaved::Shape kShape{.rows = 1, .context = 2, .dtype = Dtype::f32, .residual = Dtype::f32};

struct Case {
  PipelineShape shape;
  Schedule schedule = Schedule::one_f_one_b;
  std::vector<int64_t> half_layers{};  // by piece
  Recompute recompute = Recompute::none;
};

// Schedules in turn, with pieces of one to five half-layers; every third has a last piece of none.
Case random_case(uint64_t seed) {
  auto roll = [&, at = uint64_t{0}](uint64_t sides) mutable { return static_cast<int64_t>(philox64(seed, at++) % sides); };
  constexpr Schedule schedules[] = {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble,
                                    Schedule::zero_bubble_v};
  Case drawn{.shape = {.stages = 1 + roll(6)}, .schedule = schedules[seed % 5]};
  PipelineShape& shape = drawn.shape;
  if (drawn.schedule == Schedule::interleaved) shape.chunks = 1 + roll(5);
  if (drawn.schedule == Schedule::zero_bubble_v) shape.chunks = 2, shape.turns = true, ++shape.stages;
  shape.microbatches = shape.stages * (1 + roll(4));
  for (int64_t i = 0; i < shape.pieces(); ++i) drawn.half_layers.push_back(1 + roll(5));
  if (seed % 3 == 0 && shape.pieces() > 1) drawn.half_layers.back() = 0;
  constexpr Recompute ways[] = {Recompute::none, Recompute::selective, Recompute::full};
  drawn.recompute = ways[seed % 7 % 3];
  return drawn;
}

// Memory that a pass has for itself alone.
std::set<const void*> memory_of(const std::vector<BlockSaved>& blocks, const Tensor& received, Recompute recompute) {
  std::set<const void*> memory;
  if (received) memory.insert(received.data());
  for (const BlockSaved& b : blocks) {
    if (b.attention_norm.sum) memory.insert(b.attention_norm.sum.data());
    if (recompute == Recompute::full) continue;
    if (b.mlp_norm.sum) memory.insert(b.mlp_norm.sum.data());
    for (const AttentionSaved& a : b.attention) memory.insert(a.qkv.data());
    for (const MlpSaved& m : b.mlp) memory.insert(m.hidden.data());
  }
  return memory;
}

}  // namespace

TEST_CASE("passes under way have memory of their own, and all of them no more than they need together") {
  Device device(Place::cpu, read_cpu_facts());
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const Case drawn = random_case(seed);
    for (int64_t stage = 0; stage < drawn.shape.stages; ++stage) {
      CAPTURE(seed, stage, drawn.shape.stages, drawn.shape.microbatches, drawn.shape.chunks, drawn.half_layers);
      const std::vector<ModelChunk> chunks = chunks_of_stage(drawn.half_layers, drawn.shape, stage);
      const std::vector<Action> actions = make_schedule(drawn.schedule, drawn.shape, stage);
      const ActivationRoom room = room_for(actions, chunks, drawn.recompute);
      Arena arena(device, int64_t{16} << 20, "activations");
      Activations activations;
      BlockSaved::Shape shape = kShape;
      shape.recompute = drawn.recompute;
      activations.take(arena, kConfig, kWhole, shape, room, chunks);
      std::map<std::pair<int64_t, int64_t>, std::set<const void*>> under_way;
      size_t most = 0;  // attentions and MLPs, or streams, that are kept at once
      for (const Action& a : actions) {
        const auto key = std::pair(a.microbatch, a.chunk);
        const ModelChunk& chunk = chunks[static_cast<size_t>(a.chunk)];
        if (a.kind == ActionKind::forward) {
          const auto& blocks = activations.begin(a.slot, chunk);
          REQUIRE(std::ssize(blocks) == chunk.blocks());
          const auto mine = memory_of(blocks, activations.received(a.slot), drawn.recompute);
          // A half-layer has its stream, which for a pass's first is the slot's, and its attention or MLP.
          const int64_t kept = drawn.recompute == Recompute::full ? chunk.blocks() : 2 * chunk.half_layers();
          const bool alone = chunk.half_layers() == 0 && activations.received(a.slot);
          CHECK(std::ssize(mine) == kept + (alone ? 1 : 0));
          for (const auto& [other, theirs] : under_way)
            for (const void* at : mine)
              if (theirs.contains(at)) FAIL("shared by microbatch " << a.microbatch << " and " << other.first);
          under_way[key] = mine;
        }
        CHECK(memory_of(activations.blocks(a.slot), activations.received(a.slot), drawn.recompute) == under_way.at(key));
        size_t now = 0;
        for (const auto& [other, theirs] : under_way) now += theirs.size();
        most = std::max(most, now);
        if (ends_pass(a.kind)) under_way.erase(key), activations.end(a.slot);
      }
      CHECK(under_way.empty());
      // With several chunks, the most of each kind may be at different times.
      const int64_t places = room.slots + room.streams + room.attentions + room.mlps;
      CHECK((drawn.shape.chunks == 1 ? places == static_cast<int64_t>(most) : places >= static_cast<int64_t>(most)));
      // Fewer microbatches need no more.
      PipelineShape fewer = drawn.shape;
      for (fewer.microbatches = fewer.stages; fewer.microbatches < drawn.shape.microbatches; fewer.microbatches += fewer.stages)
        CHECK(room.has_room_for(room_for(make_schedule(drawn.schedule, fewer, stage), chunks, drawn.recompute)));
    }
  }
}

TEST_CASE("a larger piece costs its own layers alone, whichever passes come after it") {
  // Llama 3 405B's 126 layers on 16 stages of 7 pieces: a stage's last piece has two layers, the others one.
  const PipelineShape shape{.stages = 16, .microbatches = 128, .chunks = 7};
  std::vector<int64_t> half_layers(112, 2);
  for (size_t piece = 97; piece < 111; ++piece) half_layers[piece] = 4;
  const ActivationRoom room = room_for(make_schedule(Schedule::interleaved, shape, 1), chunks_of_stage(half_layers, shape, 1), {});
  CHECK(room.slots == 125);
  CHECK(room.attentions == 125 + 16);
  CHECK(room.mlps == 125 + 16);
  CHECK(room.streams == 125 + 2 * 16);
}

TEST_CASE("a pass without a free place is an error, and a slot's next pass takes its places over") {
  Device device(Place::cpu, read_cpu_facts());
  const std::vector<ModelChunk> chunks{{.begin = 0, .end = 4, .first = true, .last = false},
                                       {.begin = 4, .end = 8, .first = false, .last = true}};
  Arena arena(device, int64_t{1} << 20, "activations");
  Activations activations;
  activations.take(arena, kConfig, kWhole, kShape, {.slots = 2, .streams = 3, .attentions = 2, .mlps = 2}, chunks);
  const std::vector<BlockSaved> first = activations.begin(0, chunks[0]);
  CHECK_THROWS_WITH(activations.begin(1, chunks[1]), ContainsSubstring("no room for the activations"));
  activations.end(1);
  const std::vector<BlockSaved>& again = activations.begin(0, chunks[1]);
  CHECK(again[1].mlp.front().hidden.data() == first[1].mlp.front().hidden.data());
  activations.end(0);
  activations.end(0);  // nothing is given back twice
  CHECK_NOTHROW(activations.begin(1, chunks[0]));
}
