// AdamW over the weights of a Stage: f32 moments, and f32 masters where the step's weights are bf16. Of each unit's flat weights
// every replica may hold and update one part alone (ZeRO: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion
// parameter models", 2020).
#pragma once

#include "model/stage.h"
#include "parallel/buckets.h"
#include "parallel/split.h"
#include "train/config.h"

namespace trireme {

class Optimizer {
 public:
  // Takes its state from arenas.optimizer: of the parts that `buckets` leaves to this replica. Stage and buckets outlive it.
  Optimizer(const TrainConfig& config, const Stage& stage, Buckets& buckets, Arenas& arenas);

  // Fresh weights: each piece a stream of normal numbers of its own, keyed by (seed, name); moments zero.
  void initialise(Stream& stream, double init_std, int64_t layers);
  // The step's weights from the masters, of all replicas: after a restore.
  void refresh(Stream& stream);
  // Before `stream` reads the weights of a unit after an update or refresh: the other replicas' parts have arrived.
  void await(Stream& stream, size_t unit) const { stream.wait(arrived_[unit]); }
  // Update number `step`, counted from 1, with the gradients in the Stage, which are zero afterwards. Leaves squared_norm().
  void update(Stream& stream, double lr, int64_t step);

  Tensor squared_norm() const { return squared_norm_; }  // [1] f32, of the last update's gradients before clipping
  // Masters under the weights' names, moments under "adam_m/NAME" and "adam_v/NAME": this replica's part of the state, in f32.
  std::vector<NamedShard> shards() const;

 private:
  struct State {              // of a unit: this replica's part, flat
    Tensor weight, gradient;  // of the Stage
    Tensor master, m, v;      // f32; the master is the weight itself when the step is f32
  };
  // Elements of one parameter in this replica's part of its unit.
  struct Segment {
    const Parameter* parameter;
    int64_t first;  // element of the parameter
    int64_t at;     // where it lies in the part
    int64_t count;
  };
  // The segments' elements of each piece: then(segment, name, shape, first element of the piece, begin and end in the part).
  template <class Then>
  void for_each_piece(Then then) const;
  void spread(Stream& stream);

  TrainConfig config_;
  Buckets& buckets_;
  std::vector<Unit> units_;
  std::vector<State> states_;
  std::vector<Segment> segments_;
  std::vector<Event> arrived_;  // of each unit's weights
  Tensor squared_norm_;
};

}  // namespace trireme
