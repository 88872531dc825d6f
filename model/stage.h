// Stage: this rank's slice of the model: weights, gradients and saved activations, taken once from the arenas.
//
// On Place::none the same code runs on memory that is only counted; that is how the plan knows the arenas' sizes.
#pragma once

#include <array>

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/model_chunk.h"

namespace trireme {

// The units in which weights are declared, in the order of the forward pass, and whose gradients are done at one moment. A tied
// copy is the embedding's table where the head reads it on another stage: that stage holds and updates it, this one has a copy.
enum class UnitKind { table, positions, block, tied_copy, head };
struct UnitId {
  UnitKind kind;
  int64_t layer = 0;  // of a block, in the model
  size_t block = 0;   // its index on this stage
};

struct StageWeights {
  EmbeddingWeights embedding;
  std::vector<BlockWeights> blocks;
  HeadWeights head;

  void declare(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config, const TensorParallel& tensor);
};

// Calls of the Stage while a microbatch passes a unit. Each may be absent.
struct UnitHooks {
  using Hook = std::function<void(size_t unit, const Microbatch& batch)>;
  Hook read{};   // a pass is about to read the unit's weights
  Hook write{};  // backward is about to write its gradients
  Hook added{};  // backward has added this pass's gradients
  Hook done{};   // of a microbatch with which gradients leave: those that all tp ranks hold are summed over these, too
};

// A weight, what the listing says of it, and its gradient (absent in a Stage that only infers).
struct Parameter {
  WeightSpec spec;
  Tensor weight;    // in the step's dtype
  Tensor gradient;  // f32
  size_t unit;
  int64_t begin;  // its first element in its unit
};

// The weights of the whole model, listed, each unit one flat tensor of `arena`. Gradients are left absent.
std::vector<Parameter> take_weights(StageWeights& weights, const ModelConfig& config, Dtype dtype, Arena& arena);
// The table of cosines and sines, [context, D/2, 2] f32, computed by `stream`; absent for gpt2.
Tensor take_rope(const ModelConfig& config, Arena& arena, Stream& stream);

// What of a unit's weights and gradients this rank holds for good: all of it, or one of several equal parts. What is not held is
// memory that units share, filled for a pass alone.
struct Holding {
  int64_t parts = 1, part = 0;
  bool weights = true, gradients = true;  // all of it, of which a part is a view
  int64_t tree_levels = 0;                // of partial sums of the gradients' part, each of its size; 0: none
};

// What a Stage is to hold and the shape of its passes: B rows of T tokens.
struct StageShape {
  int64_t rows, context;
  Dtype dtype;                  // of weights and activations
  Dtype logits = Dtype::f32;    // of the classifier, in a loss: f32 or dtype
  bool fused_products = false;  // see Pass
  int64_t fp8_begin = 0;        // layers [begin, end) of the model, whose products are of 8 bits
  int64_t fp8_end = 0;
  Holding holding{};
  std::vector<ModelChunk> chunks{};       // of the model, by chunk; none: the whole model
  int64_t slots = 1;                      // passes whose activations are kept at a time, each of one chunk
  int64_t loss_slots = 1;                 // of them, passes of the last piece
  bool halves = false;                    // backward comes in halves
  Recompute recompute = Recompute::none;  // not with halves
  TensorParallel tensor{};
};

// The weights of a unit and their gradients, flat, of one size. Gaps between weights are zero.
struct Unit {
  UnitId id;
  Tensor weights;                       // in the step's dtype
  Tensor gradients;                     // f32
  Tensor weights_part, gradients_part;  // what this rank holds for good
  Tensor tree;                          // [levels, part] f32: see Holding
  size_t memory = 0;                    // units with equal numbers share the memory that is filled for a pass alone
  bool tied_copy() const { return id.kind == UnitKind::tied_copy; }
};

// Where the activations of a pass are kept.
struct Seat {
  int64_t chunk = 0, slot = 0;
  int64_t loss_slot = 0;  // in [0, loss_slots), in the last piece
};

// What a backward computes: the gradients of this loss, all of them or those of a half.
struct StageBackward {
  const LossSum& loss;
  Backward which = Backward::whole;
};

class Stage {
 public:
  // For training: weights, f32 gradients and activations. What the shape points to outlives the Stage.
  Stage(const ModelConfig& config, const StageShape& shape, Arenas& arenas, Stream& stream);

  const std::vector<Parameter>& parameters() const { return parameters_; }  // without guests
  const std::vector<Unit>& units() const { return units_; }
  const ModelConfig& config() const { return config_; }
  const StageShape& shape() const { return shape_; }
  const ModelChunk& chunk_at(int64_t number) const { return shape_.chunks[static_cast<size_t>(number)]; }
  bool in_fp8(int64_t layer) const { return shape_.fp8_begin <= layer && layer < shape_.fp8_end; }
  bool has_last() const { return shape_.chunks.back().last; }

  // A piece that is not the first finds the stream here before forward, and leaves its gradient here in backward. [own, C]
  Tensor incoming(int64_t slot) const { return saved_[static_cast<size_t>(slot)].blocks.front().attention_norm.sum; }
  // A piece that is not the last leaves the stream here in forward, and finds its gradient here before backward. [own, C]
  Tensor outgoing(int64_t slot) const { return saved_[static_cast<size_t>(slot)].outgoing; }

  // The residual stream of a seat's forward, where it stands until its backward: each with what made it, "layers.3.mlp". [own, C]
  // A piece that is not the first begins with what it was sent, without a name.
  std::vector<std::pair<std::string, Tensor>> streams(const Seat& seat) const;

  // Keeps in the saved activations what backward needs. The batch has the Stage's shape.
  void forward(Stream& stream, const Microbatch& batch, const UnitHooks& hooks = {}, const Seat& seat = {});
  // The gradients of this seat's forward, added to the units'. The last piece adds the batch's loss to `loss` and scales its
  // gradients alike; the head's weight gradients come with Backward::input, since they need the logits.
  void backward(Stream& stream, const Microbatch& batch, const StageBackward& of, const UnitHooks& hooks = {},
                const Seat& seat = {});
  // The loss of the last piece's forward, without gradients.
  void evaluate(Stream& stream, const Microbatch& batch, const LossSum& loss, const Seat& seat = {});
  // logits [N, V] f32 of the same; of a whole vocabulary only.
  void logits(Stream& stream, const Microbatch& batch, Tensor logits);

 private:
  struct Saved {
    std::vector<BlockSaved> blocks;
    Tensor outgoing;
  };

  void take_units(Arenas& arenas);
  Unit take_unit(const UnitId& id, Arenas& arenas, std::vector<std::array<Tensor, 2>>& shared);
  void take_activations(Arena& arena);
  Pass pass(Stream& stream, const Microbatch& batch);
  void sum_shared(Stream& stream, size_t unit);
  void sum_key_values(Stream& stream, const BlockWeights& gradients);

  ModelConfig config_, shard_;  // of the whole model, of one shard
  StageShape shape_;
  Arena& temporaries_;
  StageWeights weights_, gradients_;
  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  std::vector<size_t> first_block_;  // by chunk: index of its first block
  Tensor rope_;                      // [context, D/2, 2] f32, llama only
  std::vector<Saved> saved_;         // by slot
  std::vector<NormSaved> head_norm_;
};

}  // namespace trireme
