// Commits that a run's other files know when its checkpoints are missing: exit.json, metrics.jsonl and data.jsonl, which programs
// without a lineage have left, too. A run that never committed a checkpoint to disk leaves none.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct KnownProgress {
  int64_t step = 0;    // at least so many steps were on disk; 0: nothing is known
  std::string source;  // the file that says so
};
KnownProgress known_progress(const std::string& run_directory);

// The refusal to start such a run from step 0.
std::string missing_checkpoints(const std::string& run_directory, const KnownProgress& known);

}  // namespace trireme
