// Energy, cost and the health of GPUs in Prometheus's text format.
#pragma once

#include "train/telemetry/energy_record.h"
#include "train/telemetry/exposition.h"

namespace trireme {

// Series per GPU have the labels gpu, rank and host. Beyond this many, only GPUs of rank 0's node and those that ail have them.
constexpr size_t kMostGpuSeries = 64;

void write_energy(Exposition& out, const EnergyRecord& record);

}  // namespace trireme
