#include "train/run/memory_check.h"

#include <numeric>
#include <vector>

#include "base/number_format.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

// Bytes that this machine's ranks keep in memory for checkpoint.memory_every: their own, and those of the node before.
int64_t kept_in_memory(const Plan& plan, const Nodes& nodes, const Comm& all) {
  std::vector<double> by_node(static_cast<size_t>(nodes.count()));
  by_node[static_cast<size_t>(nodes.here())] += static_cast<double>(plan.in_memory);
  if (nodes.count() > 1) by_node[static_cast<size_t>((nodes.here() + 1) % nodes.count())] += static_cast<double>(plan.in_memory);
  by_node = sum(all, by_node);
  const double here = by_node[static_cast<size_t>(nodes.here())];
  return static_cast<int64_t>(nodes.pretended() ? std::accumulate(by_node.begin(), by_node.end(), 0.0) : here);
}

}  // namespace

void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world) {
  const Device& device = place.device;
  const bool cuda = device.place() == Place::cuda;  // a GPU that is too small refuses the memory itself
  const int64_t needed = ((cuda ? plan.pinned : plan.sizes.total()) + plan.copy) * world.local_size() +
                         kept_in_memory(plan, place.nodes, place.mesh.all());
  if (needed <= device.cpu().memory_bytes) return;
  if (cuda)
    throw ConfigError(text("train.offload = optimizer needs ", human_bytes(static_cast<double>(needed)),
                           " of the host's memory but the machine has ",
                           human_bytes(static_cast<double>(device.cpu().memory_bytes)), ": set train.offload to none, or raise ",
                           "parallel.zero (now ", config.parallel.zero, ") on more nodes"));
  throw ConfigError(text("this run needs ", human_bytes(static_cast<double>(needed)), " but the machine has ",
                         human_bytes(static_cast<double>(device.cpu().memory_bytes)), ": lower train.microbatch (now ",
                         config.microbatch_rows(plan.replicas), ")", plan.copy > 0 ? ", set checkpoint.async to false" : "",
                         ", or see 'trireme plan'"));
}

}  // namespace trireme
