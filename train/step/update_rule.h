// UpdateRule: computes weights from their gradients, with the state that it keeps for each weight.
// The Optimizer decides which elements this rank updates, and the gate whether a step is an update.
// Each rule has its own file and is listed in update_rule.cpp.
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
  Tensor weight{};             // [n] bf16; absent if the master is the step's weight
  Tensor master, gradient;     // [n] f32
  std::vector<Tensor> states;  // [n] f32 each, in the order of the rule's names
  bool decays;                 // by train.decay
  bool clears = true;          // the gradient, after the update; otherwise it is written, not added to, in the next step
  WholeTensor whole{};         // their position in the model's tensor
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Writes the addresses of the parts for a GPU. Call once, before the first update.
  virtual void write_tables(Stream& stream) = 0;
  // Writes the numbers that update `step`, counted from 1, needs. Call before that update.
  virtual void schedule(Stream& stream, double lr, int64_t step) = 0;
  // Updates masters, states and weights from the gradients if the gate passes, then clears those
  // gradients that are to be cleared in any case. See kernels/ops/update_gate.h. Launches are the same in every call.
  virtual void update(Stream& stream, const Tensor& gate) = 0;
};

// Names of a rule's states, and its factory.
struct RuleKind {
  std::vector<std::string> states;  // f32 per weight, of its shape; checkpoints name them "STATE/NAME"
  std::unique_ptr<UpdateRule> (*make)(const TrainConfig& config, const std::vector<RulePart>& parts, Arena& temporaries);
};

// Returns the rule that the config selects.
RuleKind rule_of(const TrainConfig& config);

RuleKind adamw_rule();

}  // namespace trireme
