// Stage: this rank's slice of the model. It owns weights, gradients and saved activations, taken
// once from the arenas.
//
// On Place::none the same code runs on memory that is only counted. That is how the plan knows the
// arenas' sizes.
#pragma once

#include <array>

#include "model/activations.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/model_chunk.h"

namespace trireme {

// Units in which weights are declared, in the order of the forward pass. The gradients of a unit
// are complete at the same moment. A unit of blocks has neighbouring half-layers of one ModelChunk. If the head is tied and on
// another stage than the embedding, that stage has a tied copy of the table; the embedding's stage holds and updates the original.
// In a bf16 step, weights of one dim stay f32 and are units of their own, each after its matrices'.
enum class UnitKind { table, positions, block, tied_copy, head };
enum class UnitDims { all, matrices, vectors };
struct UnitId {
  UnitKind kind;
  int64_t begin = 0, end = 0;  // for blocks: half-layers of the model
  size_t block = 0;            // and the index of the first one's block on this stage
  size_t number = 0;           // and of the unit, in their order
  UnitDims dims = UnitDims::all;

  // Calls f(layer, block, halves of it) for each.
  void for_blocks(auto&& f) const {
    for (int64_t layer = begin / 2; 2 * layer < end; ++layer)
      f(layer, block + static_cast<size_t>(layer - begin / 2), Halves{.attention = begin <= 2 * layer, .mlp = 2 * layer + 1 < end});
  }

  bool has(const WeightSpec& spec) const { return dims == UnitDims::all || (dims == UnitDims::vectors) == spec.is_vector(); }
  // The dtype of its weights in a step of dtype `step`.
  Dtype dtype(Dtype step) const { return dims == UnitDims::vectors ? Dtype::f32 : step; }
};

struct StageWeights {
  EmbeddingWeights embedding;
  std::vector<BlockWeights> blocks;
  HeadWeights head;

  void declare(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config, const TensorParallel& tensor);

 private:
  void declare_kind(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config, const TensorParallel& tensor);
};

// Callbacks per unit, for each microbatch: before its weights are read, before its gradients are
// written, after they are complete. Each may be absent.
struct UnitHooks {
  using Hook = std::function<void(size_t unit, const Microbatch& batch)>;
  Hook read{};   // before a pass reads the unit's weights
  Hook ahead{};  // then, for the next unit that the pass reads and that is not held: its weights may arrive meanwhile
  Hook write{};  // before backward writes its gradients
  Hook added{};  // after backward has added this pass's gradients
  Hook done{};   // after the microbatch with which gradients leave, once shared ones are summed over the tp ranks
};

// A weight, its specification, and its gradient (absent in a Stage for inference).
struct Parameter {
  WeightSpec spec;
  Tensor weight;    // in the step's dtype; f32 if it has one dim
  Tensor gradient;  // f32
  size_t unit;
  int64_t begin;  // index of its first element in its unit
};

// Lists the weights of the whole model to `visit`, with the kind of their unit.
void declare_whole(StageWeights& weights, const ModelConfig& config,
                   const std::function<void(UnitKind, Tensor&, const WeightSpec&)>& visit);
// Table of cosines and sines, [context, D/2, 2] f32, computed by `stream`; absent for gpt2.
Tensor take_rope(const ModelConfig& config, Arena& arena, Stream& stream);

// The share of a unit's weights and gradients that this rank holds permanently: all, or one of
// several equal parts. The rest is memory that units share, filled for the duration of a pass.
struct Holding {
  int64_t parts = 1, part = 0;
  bool weights = true, gradients = true;  // true: all of it, of which a part is a view
  int64_t tree_levels = 0;                // of partial sums of the gradients' part, each of its size; 0: none
};

// Contents of a Stage and the shape of its passes: B rows of T tokens.
struct StageShape {
  int64_t rows, context;
  Dtype dtype;                  // of matrices and activations
  Dtype residual = dtype;       // of the residual stream: dtype or f32
  Dtype logits = Dtype::f32;    // of the classifier, for a loss: f32 or dtype
  bool fused_products = false;  // see Pass
  int64_t fp8_begin = 0;        // layers [begin, end) of the model have 8-bit products
  int64_t fp8_end = 0;
  // The first backward of a step writes the gradients of products' weights, instead of adding to them: see written().
  bool writes_gradients = false;
  bool rounds_once = false;  // the first forward of a step rounds their weights and keeps them: 2 more bytes each
  Holding holding{};
  std::vector<ModelChunk> chunks{};  // of the model, by chunk; none: the whole model
  ActivationRoom room{};             // for passes under way at once; none: for one of any chunk
  int64_t loss_slots = 1;            // the number of these that may be passes of the last piece
  bool halves = false;               // backward runs in halves
  bool turns = false;                // the last stage's two chunks follow each other: see PipelineShape
  int64_t agains = 0;                // with halves: passes that are between them at once, for which what was
                                     // computed again is kept
  Recompute recompute = Recompute::none;
  int64_t unit_size = 0;  // if parts are gathered: units of blocks grow to so many bytes of weights
  TensorParallel tensor{};
};

// A unit's weights and gradients, flat, of equal size. Gaps between weights are zero.
struct Unit {
  UnitId id;
  bool held;                            // this rank permanently holds all weights, not only its part
  Tensor weights;                       // of id.dtype()
  Tensor gradients;                     // f32
  Tensor weights_part, gradients_part;  // what this rank holds permanently
  Tensor tree;                          // [levels, part] f32: see Holding
  size_t memory = 0;                    // units with equal numbers share the memory that is filled for a pass
  bool tied_copy() const { return id.kind == UnitKind::tied_copy; }
};

// Place of a pass's activations.
struct Seat {
  int64_t chunk = 0, slot = 0;
  int64_t loss_slot = 0;  // in [0, loss_slots), for the last piece
  int64_t outgoing = 0;   // in [0, Stage::results()), for the others: number of outgoing()
  int64_t again = 0;      // in [0, agains), for a backward in halves
};

// Request to a backward pass: the gradients of this loss, all of them or those of one half.
struct StageBackward {
  const LossSum& loss;
  Backward which = Backward::whole;
};

class Stage {
 public:
  // A stage for training: weights, f32 gradients and activations. Objects that the shape points to
  // must outlive the Stage.
  Stage(const ModelConfig& config, const StageShape& shape, Arenas& arenas, Stream& stream);

  const std::vector<Parameter>& parameters() const { return parameters_; }  // without tied copies
  const std::vector<Unit>& units() const { return units_; }
  const ModelConfig& config() const { return config_; }
  const StageShape& shape() const { return shape_; }
  const ModelChunk& chunk_at(int64_t number) const { return shape_.chunks[static_cast<size_t>(number)]; }
  bool in_fp8(int64_t layer) const { return shape_.fp8_begin <= layer && layer < shape_.fp8_end; }
  bool has_last() const { return shape_.chunks.back().last; }
  // Whether the first backward of a step writes this gradient, so that nobody need clear it. Microbatch 0 has to come first.
  bool written(const Parameter& parameter) const;

  // Input of a piece that is not the first, [own, C]: the stream before forward; after backward its
  // gradient.
  Tensor incoming(const Seat& seat) const;
  // Memory of a piece that is not the last, [own, C]: the stream after forward, or, with another number, its
  // gradient before backward. Passes may take turns: nothing else is kept there, but with backward in halves the
  // gradient until the second half.
  Tensor outgoing(const Seat& seat) const { return outgoing_[static_cast<size_t>(seat.outgoing)]; }
  // Numbers of outgoing(): first two for streams, or two for each chunk that turns; then for gradients two, or with backward in
  // halves one a slot.
  static constexpr int64_t kTurns = 2;
  int64_t outgoing_streams() const { return shape_.turns ? 2 * kTurns : kTurns; }
  int64_t results() const { return outgoing_streams() + (shape_.halves ? shape_.room.slots : kTurns); }

  // The residual stream [own, C] at each point of a seat's forward, valid until its backward (the
  // last, if it is sent, until the next but one forward), with
  // the name of the part that wrote it, such as "layers.3.mlp". The received input of a piece that
  // is not the first has no name.
  std::vector<std::pair<std::string, Tensor>> streams(const Seat& seat) const;

  // Saves the activations that backward needs. The batch must have the Stage's shape.
  void forward(Stream& stream, const Microbatch& batch, const UnitHooks& hooks = {}, const Seat& seat = {});
  // Adds the gradients of this seat's forward to the units'. The last piece adds the batch's loss
  // to `loss` and scales its gradients by the same factor. The head's weight gradients come with
  // Backward::input, since they need the logits.
  void backward(Stream& stream, const Microbatch& batch, const StageBackward& of, const UnitHooks& hooks = {},
                const Seat& seat = {});
  // Gives up what a forward keeps for backward, where none follows.
  void forget(const Seat& seat) { activations_.end(seat.slot); }
  // Computes the loss of the last piece's forward, without gradients.
  void evaluate(Stream& stream, const Microbatch& batch, const LossSum& loss, const Seat& seat = {});
  // Computes logits [N, V] f32 of the last piece's forward; needs a whole vocabulary.
  void logits(Stream& stream, const Microbatch& batch, Tensor logits);

 private:
  void take_units(Arenas& arenas);
  Unit take_unit(const UnitId& id, Arenas& arenas, std::vector<std::array<Tensor, 2>>& shared);
  void take_rounded(Arena& arena);
  void take_activations(Arena& arena);
  NormSaved last_norm(const Seat& seat) const;
  Pass pass(Stream& stream, const Microbatch& batch);
  std::function<void(size_t unit)> reads(const UnitHooks& hooks, const Microbatch& batch, const ModelChunk& chunk, bool up) const;
  void sum_shared(Stream& stream, size_t unit);
  void sum_key_values(Stream& stream, const UnitId& unit);

  ModelConfig config_, shard_;  // of the whole model; of one shard
  StageShape shape_;
  Arena& temporaries_;
  StageWeights weights_, gradients_;
  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  std::vector<size_t> first_block_;  // by chunk: index of its first block
  Tensor rope_;                      // [context, D/2, 2] f32, llama only
  Activations activations_;
  std::vector<std::vector<BlockSaved>> again_;  // by place, the blocks of the largest chunk; none without recomputation in halves
  std::vector<Tensor> outgoing_;
  std::vector<NormSaved> head_norm_;
};

}  // namespace trireme
