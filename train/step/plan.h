// The plan: what a run holds and what a step costs, counted by walking the very step that will run on Place::none.
#pragma once

#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/tune/rates.h"
#include "parallel/mesh.h"
#include "train/config/config.h"

namespace trireme {

class Json;

struct ParameterGroup {
  std::string name;  // "embedding", "attention", "mlp", "norms", "head"
  int64_t count = 0;
};

struct MeshAxis {
  std::string name;  // "dp"
  int64_t size = 1;
};

struct Plan {
  ArenaSizes sizes{0, 0, 0, 0, 0};  // bytes, exactly what the arenas will take
  int64_t pinned = 0;               // of them, in pinned memory of the host
  int64_t copy = 0;                 // bytes of the host's memory, of the state as it was when a save began
  int64_t in_memory = 0;            // likewise, at most: of checkpoint.memory_every
  std::vector<ParameterGroup> groups;
  int64_t parameters = 0;  // of the whole model
  int64_t replicas = 1;
  int64_t tokens = 0;                     // of one optimizer step, over all replicas
  std::vector<MeshAxis> axes;             // of the mesh
  int64_t stage = 0, stages = 1;          // of the pipeline: this rank's, all
  int64_t microbatches = 1;               // of a replica in a step
  int64_t in_flight = 1;                  // whose activations a rank keeps, in chunks of the model
  double bubble = 0;                      // idle share of a stage relative to its work, if backward takes twice as long
  Tally step;                             // every op of one step
  Tally traffic;                          // of a rank in one step: "all_reduce dp": messages, and the bytes it sends
  std::vector<ProductShape> products;     // the matrix products of one step, equal shapes together
  std::vector<AttentionShape> attention;  // the attentions for which there is a choice of kernels, forward and backward
  double product_flops = 0;               // of matrix products, forward and backward, a rank's step
  double attention_flops = 0;             // of attention's products, a rank's step, on the causal pairs; no recomputation
  // What MFU divides by time: products and causal attention, forward and twice that backward; recomputation is not counted.
  double model_flops() const { return product_flops + attention_flops; }
  // Of the place where it is computed.
  int64_t device_bytes() const { return sizes.total() - pinned; }
};

// No memory is taken and nothing computed. The config is resolved.
Plan make_plan(const RunConfig& config, const Mesh& mesh);

// For people: bytes per arena, parameters by group, FLOPs and traffic by op, of the stage that needs most memory; and each stage's
// bytes. `stages`: the plan of a rank of each stage.
std::string plan_table(const RunConfig& config, const std::vector<Plan>& stages);
// The same for programs, as one object.
Json plan_json(const RunConfig& config, const std::vector<Plan>& stages);

}  // namespace trireme
