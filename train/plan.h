// The plan: what a run holds and what a step costs, counted by walking the very step that will run on Place::none.
#pragma once

#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/rates.h"
#include "train/config.h"

namespace trireme {

struct ParameterGroup {
  std::string name;  // "embedding", "attention", "mlp", "norms", "head"
  int64_t count = 0;
};

struct Plan {
  ArenaSizes sizes{0, 0, 0, 0, 0};  // bytes, exactly what the arenas will take
  std::vector<ParameterGroup> groups;
  int64_t parameters = 0;
  int64_t tokens = 0;                  // of one optimizer step
  Tally step;                          // every op of one step
  std::vector<ProductShape> products;  // the matrix products of one step, equal shapes together
  double product_flops = 0;            // of matrix products, forward and backward, a step
  double attention_flops = 0;          // of attention's products, a step, on the causal pairs; no recomputation
  // What MFU divides by time: products and causal attention, forward and twice that backward; recomputation is not counted.
  double model_flops() const { return product_flops + attention_flops; }
};

// No memory is taken and nothing computed. The config is resolved.
Plan make_plan(const RunConfig& config);

// For people: bytes per arena, parameters by group, FLOPs and traffic by op.
std::string plan_table(const RunConfig& config, const Plan& plan);
// For programs: one JSON object.
std::string plan_json(const RunConfig& config, const Plan& plan);

}  // namespace trireme
