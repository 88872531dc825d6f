// RunMeter: the energy and cost of a run. Each rank's machine is read by a thread; rank 0 gathers and records the readings.
#pragma once

#include <optional>

#include "base/clock.h"
#include "train/run/placement.h"
#include "train/telemetry/machine_meter.h"
#include "train/telemetry/run_log.h"

namespace trireme {

// Does nothing, and has no collective after the start, if no rank can read anything and there is no price.
class RunMeter {
 public:
  static constexpr std::chrono::seconds kPeriod{10};  // between records

  // All ranks; the placement outlives it. A node's first rank reads its processors, and each rank its own GPU.
  RunMeter(const RunConfig& config, const Placement& place);

  EnergyOrders orders(const RunConfig& config) const;  // for rank 0's log

  // On rank 0: a record is due, which all ranks agree on.
  bool due() const { return on_ && mesh_.first() && Clock::now() >= next_; }
  // All ranks, between steps: gathers the readings of the last second and records them. About 300 bytes of each rank that reads.
  void record(std::optional<RunLog>& log);
  // All ranks, after their last step: the same with readings of this moment.
  void record_last(std::optional<RunLog>& log);

 private:
  void gather_readings(const MachineReading& mine, std::optional<RunLog>& log);

  const Mesh& mesh_;
  const int64_t nodes_;
  const bool gpus_;
  const double began_;  // seconds from this process's start
  const MachineMeter meter_;
  const bool on_;
  Clock::time_point next_;
};

}  // namespace trireme
