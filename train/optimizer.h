// AdamW over the weights of a Stage: f32 moments, and f32 masters where the step's weights are bf16.
#pragma once

#include "model/stage.h"
#include "parallel/split.h"
#include "train/config.h"

namespace trireme {

class Optimizer {
 public:
  // Takes its state from arenas.optimizer. The Stage outlives it.
  Optimizer(const TrainConfig& config, const Stage& stage, Arenas& arenas);

  // Fresh weights: each piece a stream of normal numbers of its own, keyed by (seed, name); moments zero.
  void initialise(Stream& stream, double init_std, int64_t layers);
  // The step's weights from the masters: after a restore.
  void refresh(Stream& stream);
  // Update number `step`, counted from 1, with the gradients in the Stage, which are zero afterwards. Leaves squared_norm().
  void update(Stream& stream, double lr, int64_t step);

  Tensor squared_norm() const { return squared_norm_; }  // [1] f32, of the last update's gradients before clipping
  // Masters under the weights' names, moments under "adam_m/NAME" and "adam_v/NAME": the whole state, in f32.
  std::vector<NamedShard> shards() const;

 private:
  struct State {
    const Parameter* parameter;
    Tensor master, m, v;  // f32, the weight's shape; the master is the weight itself when the step is f32
  };

  TrainConfig config_;
  Tensor gradients_;  // all of them, flat
  std::vector<State> states_;
  Tensor squared_norm_;
};

}  // namespace trireme
