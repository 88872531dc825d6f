// EnergyRecord: energy and cost of a run so far, as one line of metrics.jsonl has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/telemetry/machine_meter.h"

namespace trireme {

constexpr double kJoulesPerKwh = 3.6e6;

// Sums over all starts of a run.
struct EnergyTotals {
  double joules = 0, co2_grams = 0, cost = 0;
  double rank_hours = 0;      // from the start of each process
  double metered_tokens = 0;  // of the steps whose energy was counted, also of those that were done again
};

// A rank whose machine is read, with what it has read.
struct MeteredRank {
  int64_t rank = 0;
  MachineReading reading{};
};

struct EnergyRecord {
  using Figure = std::optional<double>;  // none: not measured, or no price
  int64_t step = 0;
  EnergyTotals totals{};
  bool measured = false;                                       // energy, by this start or by an earlier one
  Figure joules_per_token{}, watts{};                          // since the last record that has them
  Figure projected_joules{}, projected_co2_grams{};            // of the whole run, at the mean power of this start
  Figure cost{}, projected_cost{}, cost_per_billion_tokens{};  // of the run so far; of the whole run; of its tokens so far
  Figure co2_grams{};
  std::string currency{}, run{};          // the run's token
  int64_t gpus = 0, processor_nodes = 0;  // that are measured
  double joules = 0;                      // of this process
  std::vector<MeteredRank> ranks{};

  double kwh() const { return totals.joules / kJoulesPerKwh; }
};

// The totals of the last line of directory/metrics.jsonl that has them and belongs to this run, also when a resume will drop it:
// what was spent on its steps is spent.
EnergyTotals energy_totals_before(const std::string& directory, const std::string& run);

}  // namespace trireme
