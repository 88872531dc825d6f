// Random small models, and random meshes on which to train them. A seed gives the same model, and a
// number the same mesh of it, on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Settings of a config, "section.key=value" each.
using Settings = std::vector<std::string>;

struct RandomModel {
  uint64_t seed = 0;
  Settings settings{};        // of the model, of its batches, and of what a chain of meshes must have in common
  bool invariant = false;     // numerics
  bool shares_heads = false;  // invariant, with more shards than key-value heads, of which there are two or more
};

struct RandomMesh {
  Settings settings{};
  int ranks = 1;
  bool chunks = false;      // each stage has two or more pieces of the model
  bool three_axes = false;  // dp, pp and tp are all above 1
};

// `config`: path of the config to which settings apply.
RandomModel random_model(const std::string& config, uint64_t seed);
// Mesh number `number` of this model, of two to eight ranks. One in four has chunks and one in four
// all three axes, if the model permits that.
RandomMesh random_mesh(const std::string& config, const RandomModel& model, uint64_t number);

}  // namespace trireme
