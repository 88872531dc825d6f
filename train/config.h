// The `train:` section, and RunConfig: the whole YAML file, section by section.
#pragma once

#include "checkpoint/config.h"
#include "data/config.h"
#include "kernels/config.h"
#include "model/config.h"
#include "parallel/config.h"

namespace trireme {

enum class LrSchedule { constant, linear, cosine, wsd };

template <>
struct Names<LrSchedule> {
  static constexpr std::array<std::string_view, 4> words{"constant", "linear", "cosine", "wsd"};
};

struct TrainConfig {
  std::string name = "run", runs = "runs";
  int64_t steps = 1000, batch = 16, microbatch = 0, seed = 1;
  double lr = 1e-3, min_lr = 0.1;
  int64_t warmup = 100;
  LrSchedule schedule = LrSchedule::cosine;
  double cooldown = 0.2;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1.0;
  int64_t eval_every = 100, eval_sequences = 0, log_every = 1;

  void visit(auto& keys) {
    keys("name", name, "the run directory is runs/NAME");
    keys("runs", runs, "directory of run directories");
    keys("steps", steps, "optimizer steps", at_least(1));
    keys("batch", batch, "sequences of one optimizer step, over all replicas", at_least(1));
    keys("microbatch", microbatch, "sequences of one forward pass on one replica; 0 takes the replica's whole batch", at_least(0));
    keys("seed", seed, "of the initial weights and of the data order", at_least(0));
    keys("lr", lr, "peak learning rate", above(0));
    keys("min_lr", min_lr, "final learning rate, as a fraction of lr", between(0, 1));
    keys("warmup", warmup, "steps from 0 to lr", at_least(0));
    keys("schedule", schedule, "after the warm-up; wsd: constant, then a linear cooldown");
    keys("cooldown", cooldown, "wsd: the last fraction of all steps", between(0, 1));
    keys("beta1", beta1, "AdamW's decay of the first moment", between(0, 1));
    keys("beta2", beta2, "AdamW's decay of the second moment", between(0, 1));
    keys("eps", eps, "AdamW's epsilon", above(0));
    keys("decay", decay, "decoupled weight decay; none on weights of one dim", at_least(0));
    keys("clip", clip, "largest global gradient norm; 0: no clipping", at_least(0));
    keys("eval_every", eval_every, "steps between evaluations; 0: only at the end", at_least(0));
    keys("eval_sequences", eval_sequences, "validation sequences of one evaluation; 0: all", at_least(0));
    keys("log_every", log_every, "steps between lines in log.txt", at_least(1));
  }
};

struct RunConfig {
  KernelsConfig kernels;
  ParallelConfig parallel;
  ModelConfig model;
  DataConfig data;
  CheckpointConfig checkpoint;
  TrainConfig train;

  // Walks the sections in the order of the rooms: section("kernels", kernels), ...
  void visit(auto& section) {
    section("kernels", kernels);
    section("parallel", parallel);
    section("model", model);
    section("data", data);
    section("checkpoint", checkpoint);
    section("train", train);
  }
};

}  // namespace trireme
