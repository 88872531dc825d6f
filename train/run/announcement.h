// First lines of a run, printed before its first step: model, device, mesh, memory, data.
#pragma once

#include "data/loader/mixture.h"
#include "kernels/device.h"
#include "parallel/mesh.h"
#include "train/config/config.h"
#include "train/step/plan.h"
#include "train/telemetry/run_log.h"

namespace trireme {

struct Announcement {
  const RunConfig& config;
  const Mesh& mesh;
  const Device& device;
  const Plan& plan;
  const Mixture& mixture;
  double peak;   // FLOP/s of products; 0: unknown
  int64_t step;  // finished steps
};
void announce(const Announcement& announcement, RunLog& log);

}  // namespace trireme
