// Placement: where this rank stands in a run: its device, its place on the mesh, its node, and who watches that it gets on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "parallel/mesh.h"
#include "parallel/nodes.h"
#include "train/config/config.h"
#include "train/health/watchdog.h"

namespace trireme {

// The facts of exit.json, kept outside of all that may fail.
struct RunProgress {
  std::string directory;
  bool owned = false;   // the run's lock is ours: another process's run is not written into
  bool locked = false;  // this process holds the lock now
  int64_t step = -1;    // finished steps; -1: none yet known
};

// Names the first tp group of `tp` neighbouring ranks that is on several nodes; "" if none is. `nodes`: the ranks of each.
std::string split_tp_group(const std::vector<std::vector<int64_t>>& nodes, int64_t tp);

// Built in this order, by all ranks together.
struct Placement {
  // All arguments outlive it.
  Placement(const RunConfig& config, World& world, const RunProgress& progress);

  Device device;
  Journal journal;
  Mesh mesh;
  const Nodes nodes;
  const bool shares_cores;               // threads of this node's ranks are more than its cores
  const std::optional<HangBoard> board;  // of several nodes
  Watchdog watchdog;
};

}  // namespace trireme
