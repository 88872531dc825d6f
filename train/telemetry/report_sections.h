// A run's report out of its directory: what report.html has, and goodput, time by part, incidents, data, environment and cost.
#pragma once

#include "train/telemetry/report.h"
#include "train/telemetry/run_picture.h"

namespace trireme {

ReportData report_of(const RunPicture& run);

}  // namespace trireme
