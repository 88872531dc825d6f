// Optimizer: which elements of the weights this rank updates, whether a step is an update (the gate: gradient norm, limits), and
// by what rule. f32 masters where the step's weights are bf16, and what the rule keeps. Of each unit's flat weights every replica
// may hold and update one part alone.
#pragma once

#include "kernels/ops/round_weights.h"
#include "kernels/ops/update_gate.h"
#include "model/stage.h"
#include "parallel/mesh.h"
#include "parallel/tensor_slice.h"
#include "train/config/config.h"
#include "train/step/replica_sync.h"
#include "train/step/update_rule.h"

namespace trireme {

class Optimizer {
 public:
  // Takes masters and the rule's states from arenas.optimizer, of the parts that the Stage holds, and what is small from
  // arenas.temporaries. What it is given outlives it.
  Optimizer(const TrainConfig& config, const Mesh& mesh, const Stage& stage, ReplicaSync& sync, Arenas& arenas);

  // Fresh weights: each piece a stream of normal numbers of its own, keyed by (seed, name); states zero.
  void initialise(Stream& stream, double init_std, int64_t layers);
  // The step's weights from the masters, of all replicas: after a restore, with `steps` updates done.
  void refresh(Stream& stream, int64_t steps);
  // What update number `step`, counted from 1, goes by: to be told before it.
  void schedule(Stream& stream, double lr, int64_t step, const StepLimits& limits);
  // Instead of an update: the weights as update number `step` would leave them that passes no limit.
  void skip_update(Stream& stream, int64_t step);
  // With the gradients in the Stage, which are zero afterwards, unless they or `loss` do not pass the limits. Leaves
  // squared_norm(). Launches the same each time.
  void update(Stream& stream, const Tensor& loss);

  Tensor squared_norm() const { return squared_norm_; }  // [1] f32, of the last update's gradients before clipping
  // Masters under the weights' names, states under "STATE/NAME", as "adam_m/NAME": this replica's part of the state, in f32.
  // Of what several ranks of a replica hold, `once` leaves it to one of them.
  std::vector<TensorSlice> slices(bool once = false) const;
  std::vector<TensorSlice> masters(bool once = false) const;  // of them, without the rule's states

 private:
  struct State {               // of a unit: this replica's part, flat
    Tensor weight, gradient;   // of the Stage
    Tensor master;             // f32; the weight itself when the step is f32
    std::vector<Tensor> kept;  // f32, as the rule names them
  };
  // Elements of one parameter in this replica's part of its unit.
  struct Segment {
    const Parameter* parameter;
    int64_t first;  // element of the parameter
    int64_t at;     // where it lies in the part
    int64_t count;
  };
  // The elements of a segment that belong to one piece of its weight, and where the piece lies in the whole model's tensor.
  struct PieceRange {
    const Segment* segment;
    std::string name;
    std::vector<int64_t> shape;          // of the piece
    std::vector<int64_t> offset, whole;  // in the tensor, and its shape
    int64_t first;                       // element of the piece
    int64_t begin, end;                  // in the part
    bool copy;                           // another rank has the same and counts
  };
  template <class Then>
  void for_each_piece(Then then) const;
  template <class Which>
  void list_slices(std::vector<TensorSlice>& slices, const std::string& prefix, const Which& which, bool once) const;
  WholeTensor whole_of(const PieceRange& piece, const std::string& stream) const;
  void list_counted();
  std::vector<RulePart> list_parts() const;
  RulePart part_of(const Segment& s, int64_t begin, int64_t end, const WholeTensor& whole) const;
  void sum_squares(Stream& stream);
  void round(Stream& stream, int64_t step);

  TrainConfig config_;
  const Mesh& mesh_;
  const Stage& stage_;
  ReplicaSync& sync_;
  std::vector<State> states_;  // by unit; of a tied copy none
  std::vector<Segment> segments_;
  std::vector<Tensor> counted_;    // gradients that enter the norm on this rank
  std::vector<std::string> kept_;  // the names of what the rule keeps
  std::unique_ptr<UpdateRule> rule_;
  std::vector<RoundedPart> rounded_;  // where weights are rounded stochastically: all of them
  Tensor norm_table_, round_table_;   // of these lists, for a GPU
  Tensor numbers_, gate_, squared_norm_;
  Tensor top_, limbs_;  // where the norm is summed exactly: see kernels/ops/exact_norm.h
};

}  // namespace trireme
