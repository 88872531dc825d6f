// The plan: what a run holds and what a step costs, counted by walking the very step that will run on Place::none.
#pragma once

#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/rates.h"
#include "parallel/mesh.h"
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
  int64_t replicas = 1;
  int64_t tokens = 0;                  // of one optimizer step, over all replicas
  Tally step;                          // every op of one step
  Tally traffic;                       // of a rank in one step: "all_reduce dp": messages, and the bytes it sends
  std::vector<ProductShape> products;  // the matrix products of one step, equal shapes together
  double product_flops = 0;            // of matrix products, forward and backward, a rank's step
  double attention_flops = 0;          // of attention's products, a rank's step, on the causal pairs; no recomputation
  // What MFU divides by time: products and causal attention, forward and twice that backward; recomputation is not counted.
  double model_flops() const { return product_flops + attention_flops; }
};

// No memory is taken and nothing computed. The config is resolved.
Plan make_plan(const RunConfig& config, const Mesh& mesh);

// ConfigError, all problems at once, when the config cannot run on so many ranks.
void check_mesh(const RunConfig& config, int64_t ranks);

// For people: bytes per arena, parameters by group, FLOPs and traffic by op.
std::string plan_table(const RunConfig& config, const Plan& plan);
// For programs: one JSON object.
std::string plan_json(const RunConfig& config, const Plan& plan);

}  // namespace trireme
