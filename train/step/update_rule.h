// UpdateRule: how weights follow from their gradients, and what is kept of each weight for that. The Optimizer knows which elements
// this rank updates, the gate whether a step is an update; a rule is a file of its own, listed in update_rule.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/rounding.h"
#include "kernels/stream.h"
#include "train/config/config.h"

namespace trireme {

// Elements of one tensor of the model that this rank updates, flat.
struct RulePart {
  Tensor weight{};             // [n] bf16; absent where the master is the step's weight
  Tensor master, gradient;     // [n] f32
  std::vector<Tensor> states;  // [n] f32 each, in the order of the rule's names
  bool decays;                 // by train.decay
  WholeTensor whole{};         // where they lie in the model's tensor
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Where the parts lie, for a GPU: once, before the first update.
  virtual void write_tables(Stream& stream) = 0;
  // What update number `step`, counted from 1, goes by: before it.
  virtual void schedule(Stream& stream, double lr, int64_t step) = 0;
  // Where the gate passes, masters, states and weights from the gradients; then gradients are 0 in any case. See
  // kernels/ops/update_gate.h. Launches the same each time.
  virtual void update(Stream& stream, const Tensor& gate) = 0;
};

// A rule before it has memory.
struct RuleKind {
  std::vector<std::string> states;  // of each weight, f32, of its shape: names for checkpoints, before "/NAME"
  std::unique_ptr<UpdateRule> (*make)(const TrainConfig& config, const std::vector<RulePart>& parts, Arena& temporaries);
};

// The one that the config asks for.
RuleKind rule_of(const TrainConfig& config);

RuleKind adamw_rule();

}  // namespace trireme
