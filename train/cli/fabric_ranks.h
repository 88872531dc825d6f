// Start of commands that measure all ranks of a launcher: their world, mesh and devices, with a config or without one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "parallel/mesh.h"
#include "train/config/config.h"

namespace trireme {

struct FabricRanks {
  const World& world;
  const Comm& all;
  Mesh& mesh;
  Device& device;
  const RunConfig* config;  // nullptr: none was given, and dp has all ranks
};

// Runs `work` on every rank. `config` is a path, "" for none. An error on one of several ranks ends all of them; so does a start,
// or work, that takes longer than ten minutes.
ExitCode on_fabric_ranks(const std::string& config, const std::vector<std::string>& set,
                         const std::function<ExitCode(FabricRanks&)>& work);

}  // namespace trireme
