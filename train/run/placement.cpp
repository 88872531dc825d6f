#include "train/run/placement.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "base/number_format.h"
#include "base/text_stream.h"
#include "parallel/host_collectives.h"
#include "train/telemetry/log.h"
#include "train/telemetry/metrics.h"

namespace trireme {
namespace {

// The board through which several nodes report a hang; none for a single node. All ranks call it.
std::optional<HangBoard> board_of(const Journal& journal, const Mesh& mesh, const std::string& directory) {
  TextWriter told;
  if (std::vector<std::string> leaders = gather(mesh.all(), std::to_string(journal.leader())); mesh.first()) {
    const auto number = [](const std::string& digits) { return std::stoll(digits); };
    std::ranges::sort(leaders, {}, number);
    leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
    told << directory << "/hang-" << std::random_device()() << '\n';
    for (const std::string& leader : leaders) told << leader << ' ';
  }
  TextReader in(broadcast(mesh.all(), told.str()));
  std::string path;
  std::getline(in, path);
  const std::vector<int64_t> leaders{std::istream_iterator<int64_t>(in), {}};
  if (leaders.size() <= 1) return std::nullopt;
  const auto node = std::find(leaders.begin(), leaders.end(), journal.leader()) - leaders.begin();
  return std::optional<HangBoard>(std::in_place, path, node, static_cast<int64_t>(leaders.size()));
}

std::string place_of(const Watchdog::Finding& found) { return found.stack.empty() ? "" : "; its stack: " + found.stack; }

std::string seconds_now(double patience) { return "train.hang_after (now " + significant(patience, 3) + " s)"; }

std::string hang_line(const Watchdog::Finding& found, double patience) {
  return "hang: " + found.verdict.line + place_of(found) + ". This machine: " + found.machine +
         ". If steps may take so long, raise " + seconds_now(patience) +
         ", or set it to 0; the same command continues from the newest checkpoint";
}

std::string warning_line(Watchdog::Warning why, const Watchdog::Finding& found, double patience) {
  if (why == Watchdog::Warning::disk)
    return "warning: steps wait for a disk: " + found.verdict.line + ". If that is usual here, raise train.hang_after";
  const bool slow = why == Watchdog::Warning::slow;
  return "warning: no progress: " + found.verdict.line + place_of(found) + ". This machine: " + found.machine +
         ". The run continues" +
         (slow ? ", since that rank had too little processor time, or is stopped" : ", since no other rank waits") +
         ". If the machine is busy, start the other programs with nice, or set kernels.threads to fewer; if steps may take so "
         "long, raise " +
         seconds_now(patience);
}

Watchdog::Orders watch_orders(const RunConfig& config, const RunProgress& progress, const std::optional<HangBoard>& board) {
  const double patience = config.train.hang_after;
  // The patience of GPUs is longer: ten minutes at the start, six for disks.
  const bool gpus = config.kernels.device == DeviceChoice::cuda;
  return {
      .patience = patience,
      .at_start = gpus ? std::max(5.0, 600 / patience) : 120,
      .board = board ? &*board : nullptr,
      .for_disks = gpus ? std::clamp(360 / patience, 3.0, 12.0) : 12,
      .warn = [patience](Watchdog::Warning why, const Watchdog::Finding& found) { complain(warning_line(why, found, patience)); },
      .report =
          [&progress, patience](const Watchdog::Finding& found) {
            const std::string line = hang_line(found, patience);
            complain(line);
            if (progress.owned)
              write_exit(progress.directory, ExitCode::hang, "hang", static_cast<int>(found.verdict.rank), progress.step, line,
                         found.verdict.host);
          }};
}

// Ranks of a node, if they are to be pretended: of a two-level mesh.
int64_t node_ranks(const RunConfig& config) { return config.parallel.two_level ? config.parallel.node_ranks : 0; }

// The world, with the journal's ranks connected.
const World& connected(Journal& journal, const World& world, const RunConfig& config) {
  journal.connect(world, node_ranks(config));
  return world;
}

// Traffic of a tp group is for the links between the GPUs of a node.
Nodes with_tp_inside(Nodes nodes, const RunConfig& config) {
  const bool gpus = config.kernels.device == DeviceChoice::cuda;
  if (const std::string problem = gpus ? split_tp_group(nodes.all(), config.parallel.tp) : ""; !problem.empty())
    throw ConfigError(problem);
  return nodes;
}

}  // namespace

std::string split_tp_group(const std::vector<std::vector<int64_t>>& nodes, int64_t tp) {
  for (size_t node = 0; node < nodes.size(); ++node) {
    const std::set<int64_t> here(nodes[node].begin(), nodes[node].end());
    for (const int64_t rank : nodes[node]) {
      const int64_t first = rank / tp * tp;
      for (int64_t other = first; other < first + tp; ++other)
        if (!here.contains(other))
          return text("parallel.tp = ", tp, ": ranks ", first, " to ", first + tp - 1,
                      " form a group that must be on one node, but rank ", rank, " is on node ", node, " and rank ", other,
                      " is not: start with mpirun --map-by slot or srun --distribution=block:block, and lower parallel.tp to "
                      "the GPUs of a node if it is more");
    }
  }
  return "";
}

Placement::Placement(const RunConfig& config, World& world, const RunProgress& progress)
    : device(open_device(config.kernels_of_run(), world.core_sharers(), world.local_rank())),
      journal(world.rank()),
      mesh(connected(journal, world, config), config.parallel),
      nodes(with_tp_inside(Nodes(world, node_ranks(config)), config)),
      shares_cores(world.core_sharers() * threads_here() > device.cpu().cores),
      board(board_of(journal, mesh, progress.directory)),
      watchdog(journal, world.rank(), watch_orders(config, progress, board)) {
  mesh.keep(journal);
  world.watched();
}

}  // namespace trireme
