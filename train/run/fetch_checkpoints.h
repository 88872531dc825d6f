// Fetches a run's uploaded checkpoints before a start on an empty disk: trireme supervise --fetch.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "train/run/supervise_io.h"

namespace trireme {

// Runs the command by /bin/sh if the run has no committed checkpoint on disk, or if an earlier fetch did not end. Its environment
// has TRIREME_RUN, the run's absolute directory. A failure is tried again four times, later and later. nullopt: the run may start.
// Otherwise the exit code to end with: 4, since to begin anew would lose what was uploaded, or 75 after a request to stop.
std::optional<ExitCode> fetch_if_empty(const SuperviseIo& io, const std::string& command, const std::string& run);

}  // namespace trireme
