// Optimizer: updates this rank's part of the weights by an UpdateRule, if the step passes the gate
// (gradient norm, limits). It holds f32 masters if the step's weights are bf16, and the rule's
// states. With parallel.zero, each replica holds and updates one part of each unit's flat weights.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/round_weights.h"
#include "kernels/ops/update_gate.h"
#include "model/stage.h"
#include "parallel/mesh.h"
#include "parallel/tensor_slice.h"
#include "train/config/config.h"
#include "train/step/copy_state.h"
#include "train/step/replica_sync.h"
#include "train/step/update_rule.h"

namespace trireme {

class Optimizer {
 public:
  // Takes masters and the rule's states of the Stage's parts from arenas.optimizer, and small tables
  // from arenas.temporaries. The arguments must outlive the optimizer.
  Optimizer(const RunConfig& config, const Mesh& mesh, const Stage& stage, ReplicaSync& sync, Arenas& arenas);

  // Initialises the weights and clears the states. Each piece of a weight has its own stream of normal
  // numbers, keyed by (seed, name).
  void initialise(Stream& stream, double init_std, int64_t layers);
  // Computes the step's weights of all replicas from the masters. Call after a restore, with the
  // number of updates done so far.
  void refresh(Stream& stream, int64_t steps);
  // Writes the numbers that update `step`, counted from 1, needs. Call before that update.
  void schedule(Stream& stream, double lr, int64_t step, const StepLimits& limits);
  // Replaces an update: leaves the weights as update number `step` would if it exceeded the limits.
  void skip_update(Stream& stream, int64_t step);
  // Updates the weights from the Stage's gradients if these and `loss` are within the limits, then
  // clears the gradients. Sets squared_norm(). Launches are the same in every call.
  void update(Stream& stream, const Tensor& loss);

  Tensor squared_norm() const { return squared_norm_; }  // a SquaredSum: the last update's gradients before clipping
  // With parallel.local_steps, the copies meet in an outer step after update `step`, counted from 1, if a
  // round ends there: their masters become equal. Before parallel.apart_after, outer weights follow these.
  void meet(Stream& stream, int64_t step);
  // Begins a round with the masters as they are.
  void begin_round(Stream& stream);

  // Returns this replica's part of the state that all copies share, in f32. Masters have the weights' names,
  // and states are "STATE/NAME", as in "adam_m/NAME". With parallel.local_steps it is the outer weights under
  // these names and their momentum. With `once`, pieces that several ranks of a replica hold are listed on
  // one of them only.
  std::vector<TensorSlice> slices(bool once = false) const;
  // Returns what each copy has of its own: see copy_state.h.
  std::vector<TensorSlice> own_slices(bool once = false) const;
  std::vector<TensorSlice> masters(bool once = false) const;  // the same without the rule's states

 private:
  struct State {               // this replica's part of a unit, flat
    Tensor weight, gradient;   // owned by the Stage
    Tensor master;             // f32; the weight itself if the step is f32
    std::vector<Tensor> kept;  // f32, in the order of the rule's names
    Tensor outer, momentum;    // f32, only with parallel.local_steps
  };
  // Elements of one parameter in this replica's part of its unit.
  struct Segment {
    const Parameter* parameter;
    int64_t first;  // first element, in the parameter
    int64_t at;     // the same element, in the part
    int64_t count;
  };
  // The elements of a segment that belong to one piece of its weight, with the piece's position in the
  // whole model's tensor.
  struct PieceRange {
    const Segment* segment;
    std::string name;
    std::vector<int64_t> shape;          // of the piece
    std::vector<int64_t> offset, whole;  // position in the tensor; shape of the tensor
    int64_t first;                       // first element, in the piece
    int64_t begin, end;                  // elements of the part
    bool copy;                           // another rank holds the same piece and counts it
  };
  void for_each_piece(const std::function<void(const PieceRange&)>& then) const;
  template <class Which>
  void list_slices(std::vector<TensorSlice>& slices, const std::string& prefix, const Which& which, bool once) const;
  template <class Which>
  void list_own(std::vector<TensorSlice>& slices, const std::string& prefix, const Which& which, bool once) const;
  void list_bases(std::vector<TensorSlice>& slices) const;
  void cast_weights(Stream& stream, int64_t step);
  void average_squares(Stream& stream);
  void average_moments(Stream& stream);
  void outer_step(Stream& stream, const State& state, const Tensor& u, double lr, double momentum);
  void clear_gradients(Stream& stream);
  WholeTensor whole_of(const PieceRange& piece, const std::string& stream) const;
  void list_counted();
  void list_cleared();
  std::vector<RulePart> list_parts() const;
  RulePart part_of(const Segment& s, int64_t begin, int64_t end, const WholeTensor& whole) const;
  void sum_squares(Stream& stream);
  void round(Stream& stream, int64_t step);

  TrainConfig config_;
  ParallelConfig parallel_;
  const Mesh& mesh_;
  const Stage& stage_;
  ReplicaSync& sync_;
  std::vector<State> states_;  // by unit; empty for a tied copy
  std::vector<Segment> segments_;
  std::vector<Tensor> counted_;        // gradients that this rank adds to the norm
  std::vector<BlockSquares> squares_;  // of each, if the replicas' sums compute some
  std::vector<Tensor> cleared_;        // gradients that are cleared after an update, besides those of the rule's parts
  std::vector<std::string> kept_;      // names of the rule's states
  std::unique_ptr<UpdateRule> rule_;
  std::vector<RoundedPart> rounded_;  // all parts with stochastic rounding, else none
  Tensor norm_table_, round_table_;   // counted_ and rounded_ as tables for a GPU
  Tensor numbers_, gate_, squared_norm_;
  Tensor sums_;         // [SquaredSum::kSize] f32, only with parallel.local_steps
  Tensor top_, limbs_;  // only for the exact sum of the norm: see kernels/ops/exact_norm.h
};

}  // namespace trireme
