#include "train/run/run_meter.h"

#include <string>
#include <vector>

#include "kernels/cuda_machine.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

MeterSources sources_of(const RunConfig& config, const Placement& place) {
  const Nodes& nodes = place.nodes;
  const int64_t node = nodes.pretended() ? 0 : nodes.here();
  const bool reads_processors = nodes.leader(node) == place.mesh.all().rank();
  const bool gpu = place.device.place() == Place::cuda;
  return {.powercap = reads_processors ? config.report.powercap : "", .gpu_bus = gpu ? gpu_bus() : ""};
}

}  // namespace

RunMeter::RunMeter(const RunConfig& config, const Placement& place)
    : mesh_(place.mesh),
      nodes_(place.nodes.pretended() ? 1 : place.nodes.count()),
      gpus_(place.device.place() == Place::cuda),
      began_(unix_seconds() - program_start()),
      meter_(sources_of(config, place)),
      on_(largest(mesh_.all(), !config.train.price.empty() || meter_.latest().any()) != 0),
      next_(Clock::now() + kPeriod) {}

EnergyOrders RunMeter::orders(const RunConfig& config) const {
  const int64_t ranks = mesh_.all().size();
  return {.price = parse_price(config.train.price),
          .co2_grams_per_kwh = config.train.grid_gco2_per_kwh,
          .machines = {.ranks = ranks, .nodes = nodes_, .gpus = gpus_ ? ranks : 0},
          .began = began_};
}

void RunMeter::record(std::optional<RunLog>& log) {
  gather_readings(meter_.latest(), log);
  next_ = Clock::now() + kPeriod;
}

void RunMeter::record_last(std::optional<RunLog>& log) {
  if (on_) gather_readings(meter_.fresh(), log);
}

void RunMeter::gather_readings(const MachineReading& mine, std::optional<RunLog>& log) {
  std::vector<MachineReading> ranks;
  for (const std::string& theirs : gather(mesh_.all(), to_text(mine))) ranks.push_back(reading_of_text(theirs));
  if (log) log->energy(ranks);
}

}  // namespace trireme
