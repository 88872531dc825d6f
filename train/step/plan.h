// Plan: a run's memory and a step's cost, counted by walking the same step on Place::none.
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
  ArenaSizes sizes{0, 0, 0, 0, 0};  // bytes: the exact sizes of the arenas
  int64_t pinned = 0;               // bytes of them in pinned host memory
  int64_t copy = 0;                 // bytes of host memory for snapshots of the state during a save
  int64_t in_memory = 0;            // bytes of host memory, at most, for checkpoint.memory_every
  int64_t product_scratch = 0;      // bytes that lanes of a GPU take besides, at most: for products that run apart
  int64_t sum_scratch = 0;          // and for sums of gradients: see ReplicaSync::sum_bytes()
  int64_t pieces = 0;               // parts of tensors that this rank writes to a checkpoint
  std::vector<ParameterGroup> groups;
  int64_t parameters = 0;                 // of the whole model
  int64_t replicas = 1, copies = 1;       // of the model; of the optimizer's state
  int64_t tokens = 0;                     // per optimizer step, over all replicas
  double all_pairs = 1;                   // all pairs of tokens of a sample, relative to those that attention computes
  std::vector<MeshAxis> axes;             // of the mesh
  int64_t peers = 0;                      // other ranks that one exchanges messages with, at most
  int64_t stage = 0, stages = 1;          // pipeline stages: this rank's index, the number of all
  int64_t microbatches = 1;               // per replica and step
  int64_t in_flight = 1;                  // chunks of the model whose activations a rank keeps at once
  double bubble = 0;                      // idle time of a stage relative to its work, if backward takes twice as long
  Tally step;                             // every op of one step
  Tally traffic;                          // a rank's messages and sent bytes in one step, by name: "all_reduce dp"
  Tally outer_traffic;                    // the same of an outer step, once in parallel.local_steps
  std::vector<ProductShape> products;     // matrix products of one step, counted by shape
  std::vector<AttentionShape> attention;  // attention ops with a choice of kernels, forward and backward
  double product_flops = 0;               // a rank's matrix products in one step, forward and backward
  double attention_flops = 0;             // a rank's attention in one step, causal pairs only, without recomputation
  // FLOPs for MFU: products and causal attention. Backward counts twice forward, recomputation not.
  double model_flops() const { return product_flops + attention_flops; }
  double full_flops() const;         // the same with attention of all pairs, as many publish it (Chowdhery et al., "PaLM", 2022)
  double executed_flops() const;     // what is computed: for HFU
  double fp8_product_flops() const;  // of product_flops and what is computed again: those with 8-bit operands
  // Bytes on the device that computes.
  int64_t device_bytes() const { return sizes.total() - pinned; }
};

// Makes a plan without allocating or computing anything. The config must be resolved.
Plan make_plan(const RunConfig& config, const Mesh& mesh);

// Files of a checkpoint, the tensors in its manifest, and the pieces of tensors in its files.
struct CheckpointSize {
  int64_t files = 0, tensors = 0, pieces = 0;
  int64_t bytes = 0;               // of all tensors
  int64_t apart = 0;               // of them, what each copy of the state has of its own
  int64_t most_pieces = 0;         // of a file
  int64_t manifest_bytes() const;  // approximately
  std::string problem() const;     // why no checkpoint of this size can be read again; "" if it can
};
// Looks at some of the ranks.
CheckpointSize checkpoint_size(const RunConfig& config, int64_t ranks);

// Formats a plan for people: bytes per arena, parameters by group, FLOPs and traffic by op of the
// stage that needs most memory, and the bytes of each stage. `stages` has one plan per stage.
std::string plan_table(const RunConfig& config, const std::vector<Plan>& stages, const CheckpointSize& checkpoint);
// Formats the same for programs, as one object.
Json plan_json(const RunConfig& config, const std::vector<Plan>& stages, const CheckpointSize& checkpoint);
// A model's sizes, for programs.
Json model_json(const ModelConfig& model);

}  // namespace trireme
